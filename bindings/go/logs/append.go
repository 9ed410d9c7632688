package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

const (
	termHeader      = "Nuthatch-Term"
	transientHeader = "Nuthatch-Transient"
	lastHeader      = "Nuthatch-Last-Sequence"
	idHeader        = "Nats-Msg-Id"
)

// outcome of an append.
type outcome struct {
	position Position
	err      error
}

// appends that wait for their answers: one subscription, and a number for each.
type appends struct {
	conn   *nats.Conn
	prefix string
	sub    *nats.Subscription

	mu      sync.Mutex
	waiting map[uint64]chan outcome
	next    uint64
	closed  error
	done    chan struct{}
}

func newAppends(conn *nats.Conn) (*appends, error) {
	a := &appends{conn: conn, prefix: nats.NewInbox() + ".", waiting: map[uint64]chan outcome{}, done: make(chan struct{})}
	sub, err := conn.Subscribe(a.prefix+"*", a.answered)
	if err != nil {
		return nil, err
	}
	// Answers are few bytes and as many as appends that wait.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	a.sub = sub
	changes := conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	go func() {
		defer conn.RemoveStatusListener(changes)
		for {
			select {
			case <-a.done:
				return
			case status, ok := <-changes:
				if !ok {
					return
				}
				a.fail(fmt.Errorf("%w: the connection is %v", ErrUncertain, status))
			}
		}
	}()
	return a, nil
}

// register gives a new append its reply subject and the place where its outcome comes.
func (a *appends) register() (uint64, chan outcome, error) {
	result := make(chan outcome, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return 0, nil, a.closed
	}
	a.next++
	a.waiting[a.next] = result
	return a.next, result, nil
}

func (a *appends) forget(number uint64) {
	a.mu.Lock()
	delete(a.waiting, number)
	a.mu.Unlock()
}

// fail ends everything that waits: whether it is stored is not known.
func (a *appends) fail(err error) {
	a.mu.Lock()
	waiting := a.waiting
	a.waiting = map[uint64]chan outcome{}
	a.mu.Unlock()
	for _, result := range waiting {
		result <- outcome{err: err}
	}
}

func (a *appends) close(err error) {
	a.mu.Lock()
	already := a.closed != nil
	a.closed = err
	a.mu.Unlock()
	if already {
		return
	}
	close(a.done)
	_ = a.sub.Unsubscribe()
	a.fail(fmt.Errorf("%w: %w", ErrUncertain, err))
}

func (a *appends) answered(message *nats.Msg) {
	number, err := strconv.ParseUint(message.Subject[len(a.prefix):], 36, 64)
	if err != nil {
		return
	}
	a.mu.Lock()
	result := a.waiting[number]
	delete(a.waiting, number)
	a.mu.Unlock()
	if result != nil {
		result <- answer(message)
	}
}

func answer(message *nats.Msg) outcome {
	if len(message.Data) == 0 && message.Header.Get("Status") == "503" {
		// No server takes it at the moment, so nothing was stored.
		return outcome{err: fmt.Errorf("%w: %w", ErrNoChannel, nats.ErrNoResponders)}
	}
	if position, ok := usual(message.Data); ok {
		return outcome{position: position}
	}
	var ack struct {
		Error    *APIError `json:"error"`
		Sequence uint64    `json:"seq"`
	}
	if err := json.Unmarshal(message.Data, &ack); err != nil {
		return outcome{err: fmt.Errorf("%w: the answer is not understood: %w", ErrUncertain, err)}
	}
	if ack.Error != nil {
		err := error(ack.Error)
		if strings.Contains(ack.Error.Text, "outcome is unknown") {
			err = fmt.Errorf("%w: %w", ErrUncertain, err)
		}
		return outcome{err: err}
	}
	return outcome{position: Position(ack.Sequence)}
}

// usual reads {"stream":"S","seq":7}.
func usual(data []byte) (Position, bool) {
	at := bytes.LastIndex(data, []byte(`","seq":`))
	if at < 0 || data[len(data)-1] != '}' || !bytes.HasPrefix(data, []byte(`{"stream":"`)) {
		return 0, false
	}
	var number uint64
	for _, b := range data[at+8 : len(data)-1] {
		if b < '0' || b > '9' {
			return 0, false
		}
		number = number*10 + uint64(b-'0')
	}
	return Position(number), true
}

// message of a record.
func (l *Log) message(record *Record, transient bool) (*nats.Msg, error) {
	header := make(nats.Header, len(record.Properties)+3)
	for name, value := range record.Properties {
		if strings.HasPrefix(name, "Nats-") || strings.HasPrefix(name, "Nuthatch-") || strings.ContainsAny(name, ": \r\n") || name == "" {
			return nil, fmt.Errorf("property %q: the name is not allowed", name)
		}
		if strings.ContainsAny(value, "\r\n") {
			return nil, fmt.Errorf("property %q: a value holds no line breaks", name)
		}
		header[name] = []string{value}
	}
	header[termHeader] = []string{strconv.FormatUint(l.term, 10)}
	if record.ID != "" {
		header[idHeader] = []string{record.ID}
	}
	if transient {
		header[transientHeader] = []string{"1"}
	}
	return &nats.Msg{Subject: l.subject, Header: header, Data: record.Data}, nil
}

// send publishes a record; its outcome comes.
func (l *Log) send(record *Record, transient bool) (uint64, chan outcome, error) {
	if l.mode != ReadWrite {
		return 0, nil, ErrReadOnly
	}
	message, err := l.message(record, transient)
	if err != nil {
		return 0, nil, err
	}
	number, result, err := l.appends.register()
	if err != nil {
		return 0, nil, err
	}
	message.Reply = l.appends.prefix + strconv.FormatUint(number, 36)
	// What nats.go keeps while it reconnects would be sent behind a failure that was told already.
	if !l.conn.IsConnected() {
		l.appends.forget(number)
		return 0, nil, fmt.Errorf("nothing was sent: %w", nats.ErrDisconnected)
	}
	if err := l.conn.PublishMsg(message); err != nil {
		l.appends.forget(number)
		return 0, nil, fmt.Errorf("nothing was sent: %w", err)
	}
	return number, result, nil
}

func (l *Log) wait(ctx context.Context, number uint64, result chan outcome) (Position, error) {
	select {
	case outcome := <-result:
		if outcome.err != nil {
			return 0, fmt.Errorf("channel %s: %w", l.channel, outcome.err)
		}
		return outcome.position, nil
	case <-ctx.Done():
		l.appends.forget(number)
		return 0, fmt.Errorf("%w: %w", ErrUncertain, ctx.Err())
	}
}

// Append adds a record. When it returns without an error the record is durable, at the position that it tells.
func (l *Log) Append(ctx context.Context, record Record) (Position, error) {
	number, result, err := l.send(&record, false)
	if err != nil {
		return 0, err
	}
	return l.wait(ctx, number, result)
}

// AppendMany adds records in their order, all on their way at once. It tells the positions of those that are
// durable, in front, and the error of the first one that is not (those behind it may be there).
func (l *Log) AppendMany(ctx context.Context, records []Record) ([]Position, error) {
	type sent struct {
		number uint64
		result chan outcome
	}
	var failed error
	all := make([]sent, 0, len(records))
	for at := range records {
		number, result, err := l.send(&records[at], false)
		if err != nil {
			failed = err
			break
		}
		all = append(all, sent{number, result})
	}
	positions := make([]Position, 0, len(all))
	for _, one := range all {
		position, err := l.wait(ctx, one.number, one.result)
		if err != nil {
			return positions, errors.Join(err, failed)
		}
		positions = append(positions, position)
	}
	return positions, failed
}

// Tell sends a transient record to those who follow the channel: in its place behind what was appended before,
// and not stored. It tells the last position before it.
func (l *Log) Tell(ctx context.Context, record Record) (Position, error) {
	number, result, err := l.send(&record, true)
	if err != nil {
		return 0, err
	}
	return l.wait(ctx, number, result)
}
