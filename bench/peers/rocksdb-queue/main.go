// Command rocksdb-queue is a queue of our own on RocksDB, behind the workbench's protocol. It stands
// where RocksMQ would: the same store with its default options and its write-ahead log not synced.
// It is not RocksMQ, whose binding needs functions that RocksDB 7 has dropped.
//
// A message is a key (topic, number) with its body. Receivers share one position and delete what
// they have acknowledged. Positions are in memory: a message whose receiver dies is not delivered
// again while the program runs.
package main

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"nuthatch.invalid/bench/harness"
)

func main() {
	harness.Main("rocksdb-queue 1 (librocksdb)", open)
}

type system struct {
	db *database

	mu     sync.Mutex
	topics map[string]*topic
	made   uint32
}

type topic struct {
	db     *database
	number uint32

	mu sync.Mutex
	// next is the number of the next message sent, read that of the next one received.
	next, read uint64
	// grown is closed, and made anew, when messages come.
	grown chan struct{}
}

func open(dir string) (harness.System, error) {
	db, err := openDatabase(dir)
	if err != nil {
		return nil, err
	}
	return &system{db: db, topics: map[string]*topic{}}, nil
}

func (s *system) Guarantee() harness.Guarantee {
	return harness.Guarantee{Replicated: "no", Fsync: "no (write-ahead log not synced, RocksDB's default)"}
}

// Prepare begins a new topic under the name.
func (s *system) Prepare(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	s.topics[name] = &topic{db: s.db, number: s.made, grown: make(chan struct{})}
	return nil
}

func (s *system) find(name string) (*topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	if t == nil {
		return nil, errors.New("no such topic: " + name)
	}
	return t, nil
}

func (s *system) Sender(name string, _ uint32) (harness.Sender, error) {
	return s.find(name)
}

func (s *system) Receiver(name string, _ uint32) (harness.Receiver, error) {
	t, err := s.find(name)
	return &receiver{topic: t}, err
}

func (s *system) Close() {
	s.db.close()
}

func (t *topic) key(number uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, t.number), number)
}

// Send holds the lock while it writes, so that numbers appear in order.
func (t *topic) Send(messages [][]byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	changes := newBatch()
	for i, body := range messages {
		changes.put(t.key(t.next+uint64(i)), body)
	}
	if err := t.db.write(changes); err != nil {
		return err
	}
	t.next += uint64(len(messages))
	close(t.grown)
	t.grown = make(chan struct{})
	return nil
}

// claim takes up to max messages, waiting for the first.
func (t *topic) claim(max int, wait time.Duration) (first, end uint64) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		t.mu.Lock()
		first, end = t.read, min(t.next, t.read+uint64(max))
		t.read = end
		grown := t.grown
		t.mu.Unlock()
		if end > first {
			return first, end
		}
		select {
		case <-grown:
		case <-timer.C:
			return first, first
		}
	}
}

type receiver struct {
	topic *topic
	// claimed and not acknowledged.
	claimed []uint64
}

func (r *receiver) Receive(max int, wait time.Duration) ([][]byte, error) {
	first, end := r.topic.claim(max, wait)
	var messages [][]byte
	for number := first; number < end; number++ {
		body, err := r.topic.db.get(r.topic.key(number))
		if err != nil {
			return nil, err
		}
		messages = append(messages, body)
		r.claimed = append(r.claimed, number)
	}
	return messages, nil
}

func (r *receiver) Ack() error {
	changes := newBatch()
	for _, number := range r.claimed {
		changes.remove(r.topic.key(number))
	}
	r.claimed = r.claimed[:0]
	return r.topic.db.write(changes)
}
