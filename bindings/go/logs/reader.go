package logs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

const (
	readAheadDefault = 512
	readAheadBytes   = 16 << 20
	heldMax          = 1024
	idleHeartbeat    = time.Second
	pullExpires      = 30 * time.Second
	retryPause       = 250 * time.Millisecond
)

type startKind int

const (
	fromBeginning startKind = iota
	fromEnd
	fromPosition
)

// Start says where a reader begins.
type Start struct {
	kind     startKind
	position Position
}

// Beginning is the first record that is there.
func Beginning() Start { return Start{kind: fromBeginning} }

// End is behind the last record that is there when the reader is opened.
func End() Start { return Start{kind: fromEnd} }

// At is a position, included; if it is gone, the next one that is there.
func At(position Position) Start { return Start{kind: fromPosition, position: max(position, 1)} }

// Behind is a position, not included.
func Behind(position Position) Start { return Start{kind: fromPosition, position: position + 1} }

// ReadOptions of a reader; the zero value reads stored records only.
type ReadOptions struct {
	// ReadAhead is how many records may wait in this process. Zero: 512. A bound of 16 MiB holds as well.
	ReadAhead int
	// Transient records are told too.
	Transient bool
}

// Reader follows a channel. It is used by one goroutine at a time.
type Reader struct {
	log       *Log
	readAhead int
	messages  chan *nats.Msg
	subs      []*nats.Subscription
	inbox     string

	// Everything up to this position has come or is gone; what was told is told.
	done, told Position
	// What is to be told next, and transient records whose place has not come.
	ready, held []Record

	consumer   string
	delivered  uint64 // of this consumer
	asked      int    // messages that it may still send
	average    int    // bytes of a record
	heard      time.Time
	reconnects uint64
	dropped    int
}

// Read opens a reader. It begins where start says, as of now, and ends with [Reader.Close].
func (l *Log) Read(ctx context.Context, start Start, options ReadOptions) (*Reader, error) {
	readAhead := options.ReadAhead
	if readAhead <= 0 {
		readAhead = readAheadDefault
	}
	bounds, err := l.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	r := &Reader{
		log: l, readAhead: readAhead, inbox: nats.NewInbox() + ".", average: readAheadBytes / 16,
		// Statuses and transient records come the same way.
		messages: make(chan *nats.Msg, 2*readAhead+heldMax),
	}
	switch start.kind {
	case fromBeginning:
		r.done = bounds.First - 1
	case fromEnd:
		r.done = bounds.Last
	case fromPosition:
		r.done = start.position - 1
	}
	r.told = r.done
	subjects := []string{r.inbox + "*"}
	if options.Transient {
		// One Go channel for both, so that their order is the connection's.
		subjects = append(subjects, "$JS.EVENT.TRANSIENT."+l.stream)
	}
	for _, subject := range subjects {
		sub, err := l.conn.ChanSubscribe(subject, r.messages)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.subs = append(r.subs, sub)
	}
	return r, nil
}

// Position is the last one that was told, or that is gone; a reader behind it goes on where this one stands.
func (r *Reader) Position() Position { return r.told }

// Close ends the reader.
func (r *Reader) Close() {
	for _, sub := range r.subs {
		_ = sub.Unsubscribe()
	}
	r.subs = nil
	r.drop()
}

func (r *Reader) drop() {
	if r.consumer != "" {
		_ = r.log.conn.Publish("$JS.API.CONSUMER.DELETE."+r.log.stream+"."+r.consumer, nil)
		r.consumer = ""
	}
}

// Next waits for the next record. While the broker is away it waits for it to come back; a channel that was
// deleted is [ErrNoChannel].
func (r *Reader) Next(ctx context.Context) (Record, error) {
	timer := time.NewTimer(idleHeartbeat)
	defer timer.Stop()
	for {
		if len(r.ready) > 0 {
			record := r.ready[0]
			r.ready = r.ready[1:]
			if !record.Transient {
				r.told = record.Position
			}
			return record, nil
		}
		if err := r.ensure(ctx); err != nil {
			return Record{}, err
		}
		select {
		case <-ctx.Done():
			return Record{}, ctx.Err()
		case message, ok := <-r.messages:
			if !ok || len(r.subs) == 0 {
				return Record{}, ErrClosed
			}
			r.take(ctx, message)
		case <-timer.C:
			r.noticeDrops()
			timer.Reset(idleHeartbeat)
		}
	}
}

// ensure there is a consumer that lives, and that it may send.
func (r *Reader) ensure(ctx context.Context) error {
	if len(r.subs) == 0 {
		return ErrClosed
	}
	conn := r.log.conn
	if r.consumer != "" {
		silent := time.Since(r.heard) > 4*idleHeartbeat && len(r.messages) == 0
		if silent || conn.Stats().Reconnects != r.reconnects {
			r.drop()
		}
	}
	for r.consumer == "" {
		err := r.create(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, ErrNoChannel) || ctx.Err() != nil || conn.IsClosed() {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryPause):
		}
	}
	want := min(r.readAhead, max(1, readAheadBytes/max(r.average, 1)))
	if r.asked > want/2 {
		return nil
	}
	more := want - r.asked
	request := fmt.Sprintf(`{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, more, pullExpires, idleHeartbeat)
	subject := "$JS.API.CONSUMER.MSG.NEXT." + r.log.stream + "." + r.consumer
	if err := conn.PublishRequest(subject, r.inbox+r.consumer, []byte(request)); err != nil {
		return err
	}
	r.asked += more
	return nil
}

// noticeDrops begins anew where nats.go had no room: too many transient records at once.
func (r *Reader) noticeDrops() {
	total := 0
	for _, sub := range r.subs {
		dropped, _ := sub.Dropped()
		total += dropped
	}
	if total != r.dropped {
		r.dropped = total
		r.drop()
	}
}

func (r *Reader) create(ctx context.Context) error {
	name := nuid.Next()
	request := map[string]any{
		"stream_name": r.log.stream,
		"config": map[string]any{
			"name": name, "deliver_policy": "by_start_sequence", "opt_start_seq": r.done + 1, "ack_policy": "none",
			"replay_policy": "instant", "mem_storage": true, "inactive_threshold": 2 * pullExpires,
		},
	}
	reconnects := r.log.conn.Stats().Reconnects
	if err := r.log.api(ctx, "CONSUMER.CREATE."+r.log.stream+"."+name, request, nil); err != nil {
		return err
	}
	r.consumer, r.delivered, r.asked, r.heard, r.reconnects = name, 0, 0, time.Now(), reconnects
	return nil
}

func (r *Reader) take(ctx context.Context, message *nats.Msg) {
	if !strings.HasPrefix(message.Reply, "$JS.ACK.") {
		switch {
		case message.Subject == r.inbox+r.consumer:
			r.status(ctx, message)
		case !strings.HasPrefix(message.Subject, r.inbox):
			r.hold(message)
		}
		return
	}
	consumer, position, delivered, ok := meta(message.Reply)
	if !ok || consumer != r.consumer {
		return
	}
	r.heard = time.Now()
	r.asked--
	if delivered != r.delivered+1 || position <= r.done {
		// Some were lost on the way: once more from what came last.
		r.drop()
		return
	}
	r.delivered = delivered
	r.average = (7*r.average + len(message.Data) + 64) / 8
	r.release(position - 1)
	r.ready = append(r.ready, Record{
		Position: position, Data: message.Data, Properties: properties(message.Header), ID: message.Header.Get(idHeader),
	})
	r.done = position
	r.release(position)
}

// release the transient records whose place is up to this position.
func (r *Reader) release(through Position) {
	for len(r.held) > 0 && r.held[0].Position <= through {
		r.ready = append(r.ready, r.held[0])
		r.held = r.held[1:]
	}
}

func (r *Reader) hold(message *nats.Msg) {
	last, err := strconv.ParseUint(message.Header.Get(lastHeader), 10, 64)
	if err != nil || Position(last) < r.done {
		return
	}
	if len(r.held) == heldMax {
		r.held = r.held[1:]
	}
	r.held = append(r.held, Record{
		Position: Position(last), Data: message.Data, Properties: properties(message.Header), Transient: true,
	})
	r.release(r.done)
}

// status of a pull request.
func (r *Reader) status(ctx context.Context, message *nats.Msg) {
	r.heard = time.Now()
	switch message.Header.Get("Status") {
	case "100":
		r.passTruncated(ctx)
	case "408", "404":
		left, _ := strconv.Atoi(message.Header.Get("Nats-Pending-Messages"))
		r.asked = max(0, r.asked-left)
	default:
		r.consumer = "" // it is gone, or the broker stops
	}
}

// passTruncated tells transient records behind stored ones that do not come any more.
func (r *Reader) passTruncated(ctx context.Context) {
	if len(r.held) == 0 || len(r.messages) > 0 {
		return
	}
	var info struct {
		Pending uint64 `json:"num_pending"`
	}
	last := r.held[len(r.held)-1].Position
	err := r.log.api(ctx, "CONSUMER.INFO."+r.log.stream+"."+r.consumer, nil, &info)
	// What was sent before the answer is here by now.
	if err == nil && info.Pending == 0 && len(r.messages) == 0 {
		r.done = max(r.done, last)
		r.release(last)
	}
}

// meta reads consumer, stream sequence and consumer sequence from an acknowledgement subject.
func meta(reply string) (string, Position, uint64, bool) {
	tokens := strings.Split(reply, ".")
	if len(tokens) > 9 {
		// With domain and account in front.
		tokens = append(tokens[:2:2], tokens[4:]...)
	}
	if len(tokens) < 9 {
		return "", 0, 0, false
	}
	position, err := strconv.ParseUint(tokens[5], 10, 64)
	delivered, err2 := strconv.ParseUint(tokens[6], 10, 64)
	return tokens[3], Position(position), delivered, err == nil && err2 == nil
}

func properties(header nats.Header) map[string]string {
	found := make(map[string]string, len(header))
	for name, values := range header {
		if len(values) > 0 && !strings.HasPrefix(name, "Nats-") && !strings.HasPrefix(name, "Nuthatch-") {
			found[name] = values[0]
		}
	}
	return found
}
