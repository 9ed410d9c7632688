package embed

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Options says how a broker is opened. The zero value is a broker without a port whose store is in ./nuthatch-data.
type Options struct {
	// Port clients of other processes connect to; 0: none, -1: a free one, which [Broker.URL] tells.
	Port int
	// Host is the address to listen on (default: 127.0.0.1).
	Host string
	// StoreDir is the directory of the store.
	StoreDir string
	// MaxFileStore bounds the store, in bytes; 0: no bound. Beyond it publishes are refused.
	MaxFileStore int64
	// MaxPayload bounds a message, in bytes; 0: 1 MiB.
	MaxPayload int64
	// MaxPending bounds what waits for one client, in bytes; 0: 64 MiB. Beyond it the client is closed.
	MaxPending int64
	// InitializeTimeout bounds the opening; 0: no bound.
	InitializeTimeout time.Duration
	// Log says what is logged, and where to.
	Log Log
	// Extra is more text of a configuration file.
	Extra string
}

// Log says what is logged, and where to.
type Log struct {
	// File is where lines go; "": nowhere, unless Stderr is set.
	File string
	// Stderr sends lines to the standard error stream where there is no file.
	Stderr bool
	// Trace logs protocol messages, Debug what happens to connections.
	Trace, Debug bool
	// NoTime leaves out the time of each line.
	NoTime bool
	// SizeLimit is the size at which the file is set aside and begun anew, in bytes; 0: none.
	SizeLimit int64
}

// Retention says how long a stream keeps messages. Zero is no bound.
type Retention struct {
	MaxAge   time.Duration
	MaxBytes int64
	MaxMsgs  int64
}

// Apply sets the bounds of a stream; the oldest messages go first.
func (r Retention) Apply(config *jetstream.StreamConfig) {
	unbounded := func(n int64) int64 {
		if n == 0 {
			return -1
		}
		return n
	}
	config.MaxAge = r.MaxAge
	config.MaxBytes = unbounded(r.MaxBytes)
	config.MaxMsgs = unbounded(r.MaxMsgs)
	config.Discard = jetstream.DiscardOld
}

// Text returns the configuration file that the options stand for.
func (o Options) Text() string {
	var text strings.Builder
	line := func(isSet bool, format string, value any) {
		if isSet {
			fmt.Fprintf(&text, format+"\n", value)
		}
	}
	line(o.Port != 0, "port: %d", o.Port)
	line(o.Host != "", "host: %s", quote(o.Host))
	line(o.MaxPayload != 0, "max_payload: %d", o.MaxPayload)
	line(o.MaxPending != 0, "max_pending: %d", o.MaxPending)
	line(o.InitializeTimeout != 0, "ready_timeout: %s", quote(o.InitializeTimeout.String()))
	line(o.Log.File != "", "log_file: %s", quote(o.Log.File))
	line(o.Log.SizeLimit != 0, "logfile_size_limit: %d", o.Log.SizeLimit)
	line(o.Log.Trace, "trace: %t", o.Log.Trace)
	line(o.Log.Debug, "debug: %t", o.Log.Debug)
	line(o.Log.NoTime, "logtime: %t", !o.Log.NoTime)
	text.WriteString("jetstream {\n")
	line(o.StoreDir != "", "  store_dir: %s", quote(o.StoreDir))
	line(o.MaxFileStore != 0, "  max_file_store: %d", o.MaxFileStore)
	text.WriteString("}\n")
	line(o.Extra != "", "%s", o.Extra)
	return text.String()
}

// quote writes a string as the configuration syntax has it.
func quote(s string) string {
	var text strings.Builder
	text.WriteByte('"')
	for _, b := range []byte(s) {
		switch {
		case b == '"' || b == '\\':
			text.WriteByte('\\')
			text.WriteByte(b)
		case b < 0x20 || b == 0x7f:
			fmt.Fprintf(&text, `\x%02x`, b)
		default:
			text.WriteByte(b)
		}
	}
	text.WriteByte('"')
	return text.String()
}
