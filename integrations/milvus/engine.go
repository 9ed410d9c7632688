// Package milvus puts Milvus's log on Nuthatch: walimpls is its write-ahead log, mqwrapper its older message
// stream. One option says where the log is: in this process, on a server, or on several.
package milvus

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"github.com/milvus-io/milvus/pkg/v2/log"
	"github.com/milvus-io/milvus/pkg/v2/util/paramtable"
)

// Embedded is the engine of a broker in this process. It needs an import of nuthatch/milvus/embedded.
const Embedded = "embedded"

// Config says where the log is.
type Config struct {
	// Engine is [Embedded], the URL of a server, or several, separated by commas.
	Engine string
	// StoreDir is the directory of an embedded log.
	StoreDir string
	// MaxPayload bounds a message of an embedded log, in bytes. Zero: 8 MiB.
	MaxPayload int64
	// MaxFileStore bounds an embedded log, in bytes. Zero: no bound.
	MaxFileStore int64
	// InitializeTimeout bounds the opening. Zero: 10 s.
	InitializeTimeout time.Duration
	// Extra is more text of a configuration file for an embedded log, such as a bucket.
	Extra string
	// Credentials is a file with a user's token and key, for servers that ask for them.
	Credentials string
	// Replicas is how many nodes of a cluster keep a new channel. Zero: one.
	Replicas int
	// Tags choose where a server places new channels, such as "log:cold".
	Tags []string
}

// FromParams reads the configuration of Milvus: nuthatch.engine, nuthatch.storeDir, nuthatch.maxPayload,
// nuthatch.maxFileStore, nuthatch.initializeTimeout (ms), nuthatch.extra, nuthatch.credentials, nuthatch.replicas,
// nuthatch.tags.
// What a number cannot be read as is an error.
func FromParams() (Config, error) {
	table := paramtable.GetBaseTable()
	var failed error
	number := func(key string) int64 {
		text := table.GetWithDefault(key, "0")
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil || value < 0 {
			failed = errors.Join(failed, fmt.Errorf("%s is no number: %q", key, text))
		}
		return value
	}
	config := Config{
		Engine:            table.GetWithDefault("nuthatch.engine", Embedded),
		StoreDir:          table.GetWithDefault("nuthatch.storeDir", "/var/lib/milvus/nuthatch"),
		MaxPayload:        number("nuthatch.maxPayload"),
		MaxFileStore:      number("nuthatch.maxFileStore"),
		InitializeTimeout: time.Duration(number("nuthatch.initializeTimeout")) * time.Millisecond,
		Extra:             table.GetWithDefault("nuthatch.extra", ""),
		Replicas:          int(number("nuthatch.replicas")),
		Credentials:       table.GetWithDefault("nuthatch.credentials", ""),
	}
	if tags := table.GetWithDefault("nuthatch.tags", ""); tags != "" {
		config.Tags = strings.Split(tags, ",")
	}
	return config, failed
}

// Broker is a broker of this process.
type Broker interface {
	nats.InProcessConnProvider
	Close() error
}

var (
	mu       sync.Mutex
	start    func(Config) (Broker, error)
	embedded = map[string]*shared{}
)

// shared by everybody who opens the same directory.
type shared struct {
	broker Broker
	users  int
}

// RegisterEmbedded is called by nuthatch/milvus/embedded.
func RegisterEmbedded(open func(Config) (Broker, error)) { start = open }

// Connection to the log.
type Connection struct {
	*nats.Conn
	storeDir string
	once     sync.Once
}

// Open finds the log, says where it is, and connects to it.
func Open(config Config, name string) (*Connection, error) {
	timeout := config.InitializeTimeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	options := []nats.Option{
		nats.Name(name), nats.Timeout(timeout), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
	}
	if config.Credentials != "" {
		options = append(options, nats.UserCredentials(config.Credentials))
	}
	connection := &Connection{}
	if config.Engine == Embedded {
		broker, err := use(config)
		if err != nil {
			return nil, err
		}
		connection.storeDir = config.StoreDir
		options = append(options, nats.InProcessServer(broker))
		config.Engine = ""
	}
	conn, err := nats.Connect(config.Engine, options...)
	if err != nil {
		connection.release()
		return nil, fmt.Errorf("the log at %q: %w", config.Engine, err)
	}
	connection.Conn = conn
	where := conn.ConnectedUrlRedacted()
	if connection.storeDir != "" {
		where = Embedded + " in " + connection.storeDir
	}
	log.Info("Nuthatch keeps the log", zap.String("engine", where), zap.String("for", name),
		zap.String("version", conn.ConnectedServerVersion()))
	return connection, nil
}

func use(config Config) (Broker, error) {
	mu.Lock()
	defer mu.Unlock()
	if known := embedded[config.StoreDir]; known != nil {
		known.users++
		return known.broker, nil
	}
	if start == nil {
		return nil, errors.New(`the engine "embedded" needs an import of nuthatch/milvus/embedded`)
	}
	broker, err := start(config)
	if err != nil {
		return nil, err
	}
	embedded[config.StoreDir] = &shared{broker: broker, users: 1}
	return broker, nil
}

// Close ends the connection; an embedded log ends with its last connection.
func (c *Connection) Close() {
	c.once.Do(func() {
		c.Conn.Close()
		c.release()
	})
}

func (c *Connection) release() {
	mu.Lock()
	defer mu.Unlock()
	known := embedded[c.storeDir]
	if known == nil {
		return
	}
	known.users--
	if known.users == 0 {
		delete(embedded, c.storeDir)
		if err := known.broker.Close(); err != nil {
			log.Warn("the embedded log did not close cleanly", zap.Error(err))
		}
	}
}
