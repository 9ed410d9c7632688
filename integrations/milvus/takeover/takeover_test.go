// Package takeover tests the fence of a channel in a cluster: the node that owns the log is killed, and a writer with a
// higher term opens the channel at another node while the one before still appends.
package takeover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"nuthatch/embed/logs"
)

const (
	channel   = "by-dev-rootcoord-dml_0"
	terms     = 4
	appenders = 4
	// Acknowledged to a writer before the owner is killed, at least.
	before = 100
)

// acked is what appends have told: the record at each position.
type acked struct {
	mu sync.Mutex
	at map[logs.Position]string
}

func (a *acked) add(t *testing.T, position logs.Position, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other, taken := a.at[position]; taken && other != id {
		t.Errorf("%s and %s were acknowledged at %v", other, id, position)
	}
	a.at[position] = id
}

// writer appends until it is fenced.
type writer struct {
	conn  *nats.Conn
	log   *logs.Log
	told  *acked
	acked atomic.Int64
	last  atomic.Uint64 // the highest position that was acknowledged to it
	group sync.WaitGroup
}

// open until the cluster has an owner again: that is what a takeover is about.
func open(t *testing.T, c *cluster, at int, term uint64, told *acked) *writer {
	t.Helper()
	conn := c.connect(at)
	for until := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		log, err := logs.Open(ctx, conn, channel, term, logs.ReadWrite, logs.Options{Replicas: nodes})
		cancel()
		if err == nil {
			return &writer{conn: conn, log: log, told: told}
		}
		if errors.Is(err, logs.ErrFenced) || time.Now().After(until) {
			t.Fatalf("term %d at node %d: %v", term, at, err)
		}
	}
}

// append with several goroutines. What has no answer is appended again under its id.
func (w *writer) append(t *testing.T) {
	for number := range appenders {
		w.group.Add(1)
		go func() {
			defer w.group.Done()
			for record := 0; ; record++ {
				id := fmt.Sprintf("%d/%d/%d", w.log.Term(), number, record)
				position, err := w.store(id)
				if errors.Is(err, logs.ErrFenced) {
					return
				}
				if err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				w.told.add(t, position, id)
				for last := w.last.Load(); uint64(position) > last && !w.last.CompareAndSwap(last, uint64(position)); last = w.last.Load() {
				}
				w.acked.Add(1)
			}
		}()
	}
}

// store a record, or be fenced.
func (w *writer) store(id string) (logs.Position, error) {
	for until := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		position, err := w.log.Append(ctx, logs.Record{ID: id, Data: []byte(id)})
		cancel()
		if err == nil || errors.Is(err, logs.ErrFenced) || time.Now().After(until) {
			return position, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *writer) waitAcked(t *testing.T, count int64) {
	t.Helper()
	for until := time.Now().Add(patience); w.acked.Load() < count; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("term %d: %d appends of %d", w.log.Term(), w.acked.Load(), count)
		}
	}
}

func (w *writer) waitFenced(t *testing.T) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		w.group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatalf("term %d still appends, and a higher one is open", w.log.Term())
	}
}

func TestTheOwnerIsKilledAndAHigherTermFences(t *testing.T) {
	c := startCluster(t)
	told := &acked{at: map[logs.Position]string{}}
	w := open(t, c, 0, 1, told)
	for term := uint64(2); term <= terms; term++ {
		w.append(t)
		w.waitAcked(t, before)
		owner := c.owner(w.conn, w.log.Stream())
		c.kill(owner)
		next := open(t, c, (owner+1)%nodes, term, told)
		bounds, err := next.log.Bounds(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		w.waitFenced(t)
		t.Logf("node %d killed, term %d opened at node %d: %d acknowledged before, the last at %d of %v",
			owner, term, (owner+1)%nodes, w.acked.Load(), w.last.Load(), bounds.Last)
		if w.last.Load() > uint64(bounds.Last) {
			t.Errorf("term %d was acknowledged at %d, and the channel ended at %v when term %d was opened", term-1, w.last.Load(), bounds.Last, term)
		}
		if _, err := w.store("late"); !errors.Is(err, logs.ErrFenced) {
			t.Errorf("term %d is not fenced: %v", term-1, err)
		}
		w.log.Close()
		c.start(owner)
		c.wait(owner)
		w = next
	}
	check(t, w.log, told)
}

// check that everything that was acknowledged is where it was acknowledged, once, and no record of an old term is behind one of a new.
func check(t *testing.T, log *logs.Log, told *acked) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	bounds, err := log.Bounds(ctx)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := log.Read(ctx, logs.Beginning(), logs.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	seen, term := map[string]logs.Position{}, 0
	for reader.Position() < bounds.Last {
		record, err := reader.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		id := string(record.Data)
		if other, twice := seen[id]; twice {
			t.Errorf("%s is at %v and at %v", id, other, record.Position)
		}
		seen[id] = record.Position
		var of, number, at int
		if _, err := fmt.Sscanf(id, "%d/%d/%d", &of, &number, &at); err != nil || of < term {
			t.Errorf("%s is at %v, behind term %d", id, record.Position, term)
		}
		term = of
	}
	for position, id := range told.at {
		if seen[id] != position {
			t.Errorf("%s was acknowledged at %v and is at %v", id, position, seen[id])
		}
	}
	if len(told.at) < (terms-1)*before {
		t.Errorf("%d acknowledged", len(told.at))
	}
}
