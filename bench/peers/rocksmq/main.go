// Command rocksmq puts RocksMQ, the queue of a standalone Milvus, behind the workbench's protocol. It
// is Milvus's own package with its default settings; its binding needs functions that RocksDB 7 has
// dropped, which rocksdb7/rocksdb/c.h declares again.
//
// A consumer group of RocksMQ has one position, which receiving moves; there is nothing to
// acknowledge and nothing is redelivered. Messages stay until retention removes them (three days or
// 7200 MB by default).
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/milvus-io/milvus/pkg/v2/log"
	"github.com/milvus-io/milvus/pkg/v2/mq/mqimpl/rocksmq/server"
	"github.com/milvus-io/milvus/pkg/v2/util/paramtable"
	"go.uber.org/zap/zapcore"

	"nuthatch.invalid/bench/harness"
)

// Version of the module in go.mod.
const version = "RocksMQ (milvus/pkg v2.6.7-0.20251201120310)"

// The one group that all receivers share. A process that finds a topic in its store has a new one.
const group = "bench"

func main() {
	harness.Main(func() string { return version }, open)
}

type system struct {
	rocks server.RocksMQ

	mu     sync.Mutex
	topics map[string]*topic
	made   int
}

type topic struct {
	rocks server.RocksMQ
	name  string
	group string
	// A token is in it when messages may have come.
	grown chan struct{}
}

func open(dir string) (harness.System, error) {
	log.SetLevel(zapcore.ErrorLevel)
	// Defaults only: no file, no environment, no etcd.
	paramtable.InitWithBaseTable(paramtable.NewBaseTableFromYamlOnly("none"))
	rocks, err := server.NewRocksMQ(filepath.Join(dir, "rocksmq"))
	if err != nil {
		return nil, err
	}
	return &system{rocks: rocks, topics: map[string]*topic{}}, nil
}

func (s *system) Guarantee() harness.Guarantee {
	return harness.Guarantee{Replicated: "no", Fsync: "no (write-ahead log not synced, RocksDB's default)"}
}

// Prepare begins a new topic under the name, whose group starts at its first message.
func (s *system) Prepare(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	topic := fmt.Sprintf("%s-%d", name, s.made)
	if err := s.rocks.CreateTopic(topic); err != nil {
		return err
	}
	return s.attach(name, topic, group)
}

// attach a group, which begins at the first message, to a topic of the store. s.mu is held.
func (s *system) attach(name, stored, group string) error {
	t := &topic{rocks: s.rocks, name: stored, group: group, grown: make(chan struct{}, 1)}
	if err := s.rocks.CreateConsumerGroup(t.name, group); err != nil {
		return err
	}
	consumer := &server.Consumer{Topic: t.name, GroupName: group, MsgMutex: t.grown}
	if err := s.rocks.RegisterConsumer(consumer); err != nil {
		return err
	}
	s.topics[name] = t
	return nil
}

// find a topic that was prepared; else the one that a process before this one prepared first under the name.
func (s *system) find(name string) (*topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[name] == nil {
		if err := s.attach(name, name+"-1", fmt.Sprint(group, os.Getpid())); err != nil {
			return nil, fmt.Errorf("no such topic: %s: %w", name, err)
		}
	}
	return s.topics[name], nil
}

func (s *system) Sender(name string, _ uint32) (harness.Sender, error) {
	return s.find(name)
}

func (s *system) Receiver(name string, _ uint32) (harness.Receiver, error) {
	return s.find(name)
}

// Close leaves the store as it is: its directory goes with the process, and closing it aborts in
// RocksDB 7, which checks that all column families were released first.
func (s *system) Close() {}

// Send is one write batch of RocksDB.
func (t *topic) Send(messages [][]byte) error {
	batch := make([]server.ProducerMessage, len(messages))
	for i, body := range messages {
		batch[i].Payload = body
	}
	_, err := t.rocks.Produce(t.name, batch)
	return err
}

func (t *topic) Receive(max int, wait time.Duration) ([][]byte, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		found, err := t.rocks.Consume(t.name, t.group, max)
		if err != nil {
			return nil, err
		}
		if len(found) == max {
			// There may be more, for another receiver.
			t.rocks.Notify(t.name, t.group)
		}
		if len(found) > 0 {
			return bodies(found), nil
		}
		select {
		case <-t.grown:
		case <-timer.C:
			return nil, nil
		}
	}
}

func bodies(messages []server.ConsumerMessage) [][]byte {
	bodies := make([][]byte, len(messages))
	for i, message := range messages {
		bodies[i] = message.Payload
	}
	return bodies
}

// Ack has nothing to do, see above.
func (t *topic) Ack() error {
	return nil
}
