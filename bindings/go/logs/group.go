package logs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	batchIDHeader       = "Nats-Batch-Id"
	batchSequenceHeader = "Nats-Batch-Sequence"
	batchCommitHeader   = "Nats-Batch-Commit"

	// What one batch holds at most; a broker takes 1000 messages by default.
	batchRecords = 512
	batchBytes   = 1 << 20
	// How many batches wait for their answers at a time: while the broker makes one durable the next one is sent.
	batchesInFlight = 2
	// After so long without its answer a batch no longer holds back others. Its answer may be lost with the node that
	// had the log; whoever waits for it goes on waiting until it comes, the context ends or the connection is lost.
	batchHoldsBack = 2 * time.Second
	// Of a random name, enough for the few writers that a channel has at a time.
	batchIDChars = 8
)

// batch of appends that are stored together or not at all (ADR-50), so that one answer tells the positions of all.
type batch struct {
	messages []*nats.Msg
	bytes    int
	done     chan struct{}
	outcome  outcome // of the last record
	alone    bool    // refused as a whole: each record is sent for itself

	// Under the group's lock:
	wanted   int         // records whose callers wait
	number   uint64      // by which its answer is known; 0 until it is sent
	holding  bool        // it is one of those in flight
	holdBack *time.Timer // ends that
}

// end tells the outcome, once.
func (b *batch) end(outcome outcome) {
	b.outcome = outcome
	close(b.done)
}

// group gathers appends that are made at the same time into batches: what comes while [batchesInFlight] of them
// are on their way goes with the next one.
type group struct {
	log *Log
	// Its batches' names begin with it: those of two writers of a channel must differ.
	id string

	mu       sync.Mutex
	next     *batch
	full     []*batch
	inFlight int
	sending  bool // by somebody, who sees to the next batch afterwards
	number   uint64
}

// newGroup is nil for a channel whose stream takes no batches.
func newGroup(log *Log, atomic bool) *group {
	if !atomic {
		return nil
	}
	inbox := nats.NewInbox()
	return &group{log: log, id: inbox[len(inbox)-batchIDChars:] + "-"}
}

// takes tells whether a record may go with others: it is not large, and may not be refused for itself as one with
// an ID may that is there already.
func (g *group) takes(record *Record) bool {
	return g != nil && record.ID == "" && record.size() <= g.alone()
}

// alone is the size from which on a record is sent for itself.
func (g *group) alone() int {
	return min(batchBytes/4, int(g.log.conn.MaxPayload()/2))
}

// size of what is sent, but for what the log itself adds.
func (r *Record) size() int {
	size := len(r.Data)
	for name, value := range r.Properties {
		size += len(name) + len(value) + len(": \r\n")
	}
	return size
}

// first tells how many of the first records fit into one batch; none if the first one goes for itself.
func (g *group) first(records []Record) int {
	bytes := 0
	for at := range records {
		bytes += records[at].size()
		if at == batchRecords || bytes > batchBytes || !g.takes(&records[at]) {
			return at
		}
	}
	return len(records)
}

// add puts messages of this size, which fit, in their order into one batch, and tells which and the place of the
// first. A batch that may go at once is sent.
func (g *group) add(size int, messages ...*nats.Msg) (*batch, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.next; n != nil && n.wanted == 0 {
		g.next = nil
	} else if n != nil && (len(n.messages)+len(messages) > batchRecords || n.bytes+size > batchBytes) {
		g.full = append(g.full, n)
		g.next = nil
	}
	if g.next == nil {
		g.next = &batch{done: make(chan struct{})}
	}
	b, index := g.next, len(g.next.messages)
	b.messages = append(b.messages, messages...)
	b.bytes += size
	b.wanted += len(messages)
	g.sendSome()
	return b, index
}

// sendSome sends what may go. The lock is held, and let go while a batch is sent: what comes meanwhile waits for no more
// than its place in the next one. One at a time sends, so batches go in their order. Nobody sends more than one: an append
// would else return late when others go on.
func (g *group) sendSome() {
	sent := g.mayGo()
	if sent == nil {
		return
	}
	g.number++
	g.inFlight++
	g.sending, sent.holding = true, true
	id := g.id + strconv.FormatUint(g.number, 36)
	g.mu.Unlock()
	number, err := g.send(sent, id)
	if err != nil {
		// Without its last record nothing of a batch is stored.
		sent.alone = len(sent.messages) > 1 && !errors.Is(err, nats.ErrDisconnected)
		sent.end(outcome{err: err})
	}
	g.mu.Lock()
	g.sending = false
	if err != nil {
		g.release(sent)
	} else if sent.holding {
		sent.number = number
		if sent.wanted == 0 {
			g.log.appends.forget(number)
		}
		sent.holdBack = time.AfterFunc(batchHoldsBack, func() { g.releaseAndSend(sent) })
	}
	if g.inFlight < batchesInFlight && (len(g.full) > 0 || g.next != nil) {
		go g.releaseAndSend(nil)
	}
}

// release has a batch hold back no others any more. The lock is held.
func (g *group) release(b *batch) {
	if b == nil || !b.holding {
		return
	}
	b.holding = false
	g.inFlight--
	if b.holdBack != nil {
		b.holdBack.Stop()
	}
}

func (g *group) releaseAndSend(b *batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release(b)
	g.sendSome()
}

// mayGo takes the batch that may be sent now; nil if there is none. What nobody waits for any more is not sent.
func (g *group) mayGo() *batch {
	if g.sending || g.inFlight == batchesInFlight {
		return nil
	}
	for len(g.full) > 0 {
		first := g.full[0]
		g.full = g.full[1:]
		if first.wanted > 0 {
			return first
		}
	}
	next := g.next
	g.next = nil
	if next != nil && next.wanted == 0 {
		return nil
	}
	return next
}

// send publishes a batch; the last record's answer, which has this number, is that of all.
func (g *group) send(sent *batch, id string) (uint64, error) {
	last := len(sent.messages) - 1
	for index, message := range sent.messages[:last] {
		message.Header[batchIDHeader] = []string{id}
		message.Header[batchSequenceHeader] = []string{strconv.Itoa(index + 1)}
		if err := g.log.publish(message); err != nil {
			return 0, err
		}
	}
	message := sent.messages[last]
	if last > 0 {
		message.Header[batchIDHeader] = []string{id}
		message.Header[batchSequenceHeader] = []string{strconv.Itoa(last + 1)}
		message.Header[batchCommitHeader] = []string{"1"}
	}
	return g.log.publishAnswered(message, func(o outcome) { g.answered(sent, o) })
}

func (g *group) answered(sent *batch, o outcome) {
	if n := len(sent.messages); n > 1 {
		if o.err == nil && o.count != n {
			o.err = fmt.Errorf("%w: the answer counts %d records of %d", ErrUncertain, o.count, n)
		}
		sent.alone = isOfOneRecord(o.err)
	}
	sent.end(o)
	g.releaseAndSend(sent)
}

// giveUp is called for records whose caller waits no longer.
func (g *group) giveUp(b *batch, records int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b.wanted -= records
	if b.wanted == 0 && b.number != 0 {
		g.log.appends.forget(b.number)
	}
}

// isOfOneRecord tells whether a batch, of which nothing was stored, may have been refused for one record of it.
func isOfOneRecord(err error) bool {
	var refused *APIError
	general := errors.Is(err, ErrUncertain) || errors.Is(err, ErrFenced) || errors.Is(err, ErrNotOpen) || errors.Is(err, ErrNoChannel)
	return errors.As(err, &refused) && !general
}

func (g *group) append(ctx context.Context, message *nats.Msg, size int) (Position, error) {
	b, index := g.add(size, message)
	return g.wait(ctx, b, index)
}

// appendTogether appends what [group.first] has counted.
func (g *group) appendTogether(ctx context.Context, messages []*nats.Msg, size int) ([]Position, error) {
	b, index := g.add(size, messages...)
	positions := make([]Position, 0, len(messages))
	for at := range messages {
		position, err := g.wait(ctx, b, index+at)
		if err != nil {
			g.giveUp(b, len(messages)-at-1)
			return positions, err
		}
		positions = append(positions, position)
	}
	return positions, nil
}

// wait for a record's outcome.
func (g *group) wait(ctx context.Context, b *batch, index int) (Position, error) {
	select {
	case <-b.done:
	case <-ctx.Done():
		g.giveUp(b, 1)
		return 0, fmt.Errorf("%w: %w", ErrUncertain, ctx.Err())
	}
	if !b.alone {
		if b.outcome.err != nil {
			return 0, fmt.Errorf("channel %s: %w", g.log.channel, b.outcome.err)
		}
		return b.outcome.position - Position(len(b.messages)-1-index), nil
	}
	message := b.messages[index]
	for _, name := range []string{batchIDHeader, batchSequenceHeader, batchCommitHeader} {
		delete(message.Header, name)
	}
	message.Reply = ""
	return g.log.appendAlone(ctx, message)
}
