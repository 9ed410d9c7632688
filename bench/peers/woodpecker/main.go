// Command woodpecker puts Woodpecker's embedded client with the settings it ships behind the
// workbench's protocol: on local files, or with --minio PROGRAM on objects of a MinIO that it starts
// and ends. Its metadata is in an embedded etcd. With --service DIR it starts three nodes of
// Woodpecker's service instead and measures its client on them, for bench/replicated.py.
//
// A Woodpecker log has one writer and readers of their own position; it has no consumer groups and
// no acknowledgements. So all senders of a topic share its writer, all receivers share one reader,
// and Ack does nothing: a message whose receiver dies is not delivered again.
//
// These files are Apache-2.0. The program built from it contains Woodpecker's directory "server", which
// is AGPL-3.0 or SSPL-1.0 at your choice, so do not distribute the program without meeting that.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/zilliztech/woodpecker/common/config"
	"github.com/zilliztech/woodpecker/woodpecker"
	"github.com/zilliztech/woodpecker/woodpecker/log"
	"go.etcd.io/etcd/server/v3/embed"

	"nuthatch.invalid/bench/harness"
)

// Version of the module in go.mod.
const version = "Woodpecker v0.1.29"

// How long etcd may take to start.
const etcdTimeout = 30 * time.Second

// Messages read ahead for the receivers of a topic.
const readAhead = 1000

//go:embed woodpecker.yaml
var settings []byte

var (
	minioProgram = flag.String("minio", "", "keep the data in a MinIO, started with this program")
	limits       = flag.String("limits", "", "only measure PUTs of objects, with a MinIO below this directory")
	serviceDir   = flag.String("service", "", "run three nodes below this directory, and measure what standard input asks for")
	nodeProgram  = flag.String("node", "", "with -service, Woodpecker's server")
	etcdDir      = flag.String("etcd", "", "be the etcd of a service, below this directory")
	s3           = flag.String("s3", "", "with -limits, into this bucket instead: http://HOST:PORT/BUCKET")
)

func main() {
	flag.Parse()
	var err error
	switch {
	case *limits != "":
		err = measureLimits(*minioProgram, *s3, *limits)
	case *etcdDir != "":
		err = serveEtcd(*etcdDir)
	case *serviceDir != "":
		err = runService(*serviceDir)
	default:
		harness.Main(versions, open)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func versions() string {
	if *minioProgram == "" {
		return version
	}
	return version + ", MinIO " + minioVersion(*minioProgram)
}

type system struct {
	etcd   *embed.Etcd
	minio  *exec.Cmd
	client woodpecker.Client

	mu     sync.Mutex
	topics map[string]*topic
	made   int
}

type topic struct {
	name     string
	handle   log.LogHandle
	writer   log.LogWriter
	messages chan []byte
}

func open(dir string) (harness.System, error) {
	etcd, endpoint, err := startEtcd(filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "woodpecker.yaml")
	if err := os.WriteFile(file, settings, 0o644); err != nil {
		return nil, err
	}
	cfg, err := config.NewConfiguration(file)
	if err != nil {
		return nil, err
	}
	cfg.Woodpecker.Storage.RootPath = filepath.Join(dir, "logs")
	cfg.Etcd.Endpoints = []string{endpoint}
	cfg.Log.Level = "error"
	s := &system{etcd: etcd, topics: map[string]*topic{}}
	if *minioProgram == "" {
		cfg.Woodpecker.Storage.Type = "local"
	} else {
		cfg.Woodpecker.Storage.Type = "minio"
		if s.minio, err = startMinio(*minioProgram, dir, &cfg.Minio); err != nil {
			return nil, err
		}
	}
	if s.client, err = woodpecker.NewEmbedClientFromConfig(context.Background(), cfg); err != nil {
		return nil, err
	}
	return s, nil
}

func startEtcd(dir string) (*embed.Etcd, string, error) {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "error"
	clientURL, err := freeURL()
	if err != nil {
		return nil, "", err
	}
	peerURL, err := freeURL()
	if err != nil {
		return nil, "", err
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{clientURL}, []url.URL{clientURL}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peerURL}, []url.URL{peerURL}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, clientURL.Host, nil
	case <-time.After(etcdTimeout):
		return nil, "", fmt.Errorf("etcd did not start within %v", etcdTimeout)
	}
}

func freeURL() (url.URL, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, err
	}
	defer listener.Close()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}, nil
}

func (s *system) Guarantee() harness.Guarantee {
	if s.minio != nil {
		return harness.Guarantee{
			Replicated: "no (one MinIO with one drive)",
			Fsync:      "before the answer (object PUT per flush, every 200 ms or 2 MB; MinIO syncs files, not directories)",
		}
	}
	return harness.Guarantee{
		Replicated: "no",
		Fsync:      "before the answer (file.Sync per flush, every 10 ms or 2 MB)",
	}
}

// Prepare makes a new log, because a log that was read to its end cannot be emptied.
func (s *system) Prepare(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx := context.Background()
	if old := s.topics[name]; old != nil {
		delete(s.topics, name)
		if old.writer != nil {
			old.writer.Close(ctx)
		}
		old.handle.Close(ctx)
	}
	s.made++
	log := fmt.Sprintf("%s-%d", name, s.made)
	if err := s.client.CreateLog(ctx, log); err != nil {
		return err
	}
	return s.attach(name, log)
}

// attach a log of the store. s.mu is held.
func (s *system) attach(name, log string) error {
	handle, err := s.client.OpenLog(context.Background(), log)
	if err != nil {
		return err
	}
	s.topics[name] = &topic{name: log, handle: handle}
	return nil
}

// topic that was prepared; else the one that a process before this one prepared first under the name. s.mu is held.
func (s *system) topic(name string) (*topic, error) {
	if s.topics[name] == nil {
		if err := s.attach(name, name+"-1"); err != nil {
			return nil, fmt.Errorf("no topic %q: %w", name, err)
		}
	}
	return s.topics[name], nil
}

func (s *system) Sender(name string, _ uint32) (harness.Sender, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.topic(name)
	if err != nil {
		return nil, err
	}
	if t.writer == nil {
		if t.writer, err = t.handle.OpenLogWriter(context.Background()); err != nil {
			return nil, err
		}
	}
	return sender{t.writer}, nil
}

func (s *system) Receiver(name string, _ uint32) (harness.Receiver, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.topic(name)
	if err != nil {
		return nil, err
	}
	if t.messages == nil {
		from := log.EarliestLogMessageID()
		reader, err := t.handle.OpenLogReader(context.Background(), &from, "bench")
		if err != nil {
			return nil, err
		}
		t.messages = make(chan []byte, readAhead)
		go read(reader, t.messages)
	}
	return receiver{t.messages}, nil
}

func read(reader log.LogReader, messages chan<- []byte) {
	defer close(messages)
	for {
		message, err := reader.ReadNext(context.Background())
		if err != nil {
			return
		}
		messages <- message.Payload
	}
}

func (s *system) Close() {
	ctx := context.Background()
	for _, t := range s.topics {
		if t.writer != nil {
			t.writer.Close(ctx)
		}
	}
	s.client.Close(ctx)
	s.etcd.Close()
	if s.minio != nil {
		s.minio.Process.Kill()
		s.minio.Wait()
	}
}

type sender struct {
	writer log.LogWriter
}

func (s sender) Send(batch [][]byte) error {
	ctx := context.Background()
	results := make([]<-chan *log.WriteResult, len(batch))
	for i, body := range batch {
		results[i] = s.writer.WriteAsync(ctx, &log.WriteMessage{Payload: body})
	}
	for _, result := range results {
		if r := <-result; r.Err != nil {
			return r.Err
		}
	}
	return nil
}

type receiver struct {
	messages <-chan []byte
}

func (r receiver) Receive(max int, wait time.Duration) ([][]byte, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var messages [][]byte
	select {
	case message, open := <-r.messages:
		if !open {
			return nil, fmt.Errorf("the reader has ended")
		}
		messages = append(messages, message)
	case <-timer.C:
		return nil, nil
	}
	for len(messages) < max {
		select {
		case message, open := <-r.messages:
			if !open {
				return messages, nil
			}
			messages = append(messages, message)
		default:
			return messages, nil
		}
	}
	return messages, nil
}

func (r receiver) Ack() error {
	return nil
}
