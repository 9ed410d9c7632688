package logs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

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
}

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
	sending  bool // by somebody, who looks for the next batch afterwards
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
	return g != nil && record.ID == "" && len(record.Data) <= g.alone()
}

// alone is the size from which on a record is sent for itself.
func (g *group) alone() int {
	return min(batchBytes/4, int(g.log.conn.MaxPayload()/2))
}

// first tells how many of the first records fit into one batch; none if the first one goes for itself.
func (g *group) first(records []Record) int {
	bytes := 0
	for at := range records {
		bytes += len(records[at].Data)
		if at == batchRecords || bytes > batchBytes || !g.takes(&records[at]) {
			return at
		}
	}
	return len(records)
}

// add puts messages, which fit, in their order into one batch, and tells which and the place of the first. A
// batch that may go at once is sent.
func (g *group) add(messages ...*nats.Msg) (*batch, int) {
	size := 0
	for _, message := range messages {
		size += len(message.Data)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.next; n != nil && (len(n.messages)+len(messages) > batchRecords || n.bytes+size > batchBytes) {
		g.full = append(g.full, n)
		g.next = nil
	}
	if g.next == nil {
		g.next = &batch{done: make(chan struct{})}
	}
	b, index := g.next, len(g.next.messages)
	b.messages = append(b.messages, messages...)
	b.bytes += size
	g.sendSome()
	return b, index
}

// sendSome sends what may go. The lock is held, and let go while a batch is sent: what comes meanwhile waits for no more
// than its place in the next one. One at a time sends, so batches go in their order.
func (g *group) sendSome() {
	for !g.sending && g.inFlight < batchesInFlight {
		var sent *batch
		switch {
		case len(g.full) > 0:
			sent, g.full = g.full[0], g.full[1:]
		case g.next != nil:
			sent, g.next = g.next, nil
		default:
			return
		}
		g.number++
		g.inFlight++
		g.sending = true
		id := g.id + strconv.FormatUint(g.number, 36)
		g.mu.Unlock()
		err := g.send(sent, id)
		if err != nil {
			// Without its last record nothing of a batch is stored.
			sent.end(outcome{err: err})
		}
		g.mu.Lock()
		g.sending = false
		if err != nil {
			g.inFlight--
		}
	}
}

// send publishes a batch; the last record's answer is that of all.
func (g *group) send(sent *batch, id string) error {
	last := len(sent.messages) - 1
	for index, message := range sent.messages[:last] {
		message.Header[batchIDHeader] = []string{id}
		message.Header[batchSequenceHeader] = []string{strconv.Itoa(index + 1)}
		if err := g.log.publish(message); err != nil {
			return err
		}
	}
	message := sent.messages[last]
	if last > 0 {
		message.Header[batchIDHeader] = []string{id}
		message.Header[batchSequenceHeader] = []string{strconv.Itoa(last + 1)}
		message.Header[batchCommitHeader] = []string{"1"}
	}
	_, err := g.log.publishAnswered(message, func(o outcome) { g.answered(sent, o) })
	return err
}

func (g *group) answered(sent *batch, o outcome) {
	if n := len(sent.messages); n > 1 {
		if o.err == nil && o.count != n {
			o.err = fmt.Errorf("%w: the answer counts %d records of %d", ErrUncertain, o.count, n)
		}
		sent.alone = isOfOneRecord(o.err)
	}
	sent.end(o)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	g.sendSome()
}

// isOfOneRecord tells whether a batch, of which nothing was stored, may have been refused for one record of it.
func isOfOneRecord(err error) bool {
	var refused *APIError
	general := errors.Is(err, ErrUncertain) || errors.Is(err, ErrFenced) || errors.Is(err, ErrNotOpen) || errors.Is(err, ErrNoChannel)
	return errors.As(err, &refused) && !general
}

func (g *group) append(ctx context.Context, message *nats.Msg) (Position, error) {
	b, index := g.add(message)
	return g.wait(ctx, b, index)
}

// appendTogether appends what [group.first] has counted.
func (g *group) appendTogether(ctx context.Context, messages []*nats.Msg) ([]Position, error) {
	b, index := g.add(messages...)
	positions := make([]Position, 0, len(messages))
	for at := range messages {
		position, err := g.wait(ctx, b, index+at)
		if err != nil {
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
