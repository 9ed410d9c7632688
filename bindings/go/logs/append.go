package logs

import (
	"bytes"
	"context"
	"encoding/json"
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
	count    int // records of a batch; zero of a record alone
	err      error
}

// appends that wait for their answers: one subscription, and a number for each.
type appends struct {
	conn   *nats.Conn
	prefix string
	sub    *nats.Subscription

	mu      sync.Mutex
	waiting map[uint64]func(outcome)
	next    uint64
	closed  error
	done    chan struct{}
}

func newAppends(conn *nats.Conn) (*appends, error) {
	a := &appends{conn: conn, prefix: nats.NewInbox() + ".", waiting: map[uint64]func(outcome){}, done: make(chan struct{})}
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

// register gives a new append its number; answered is called once, with its outcome.
func (a *appends) register(answered func(outcome)) (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return 0, a.closed
	}
	a.next++
	a.waiting[a.next] = answered
	return a.next, nil
}

// forget that an append waits, and tell whether it did: else its outcome was or is being told.
func (a *appends) forget(number uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, waits := a.waiting[number]
	delete(a.waiting, number)
	return waits
}

// fail ends everything that waits: whether it is stored is not known.
func (a *appends) fail(err error) {
	a.mu.Lock()
	waiting := a.waiting
	a.waiting = map[uint64]func(outcome){}
	a.mu.Unlock()
	for _, answered := range waiting {
		answered(outcome{err: err})
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
	answered := a.waiting[number]
	delete(a.waiting, number)
	a.mu.Unlock()
	if answered != nil {
		answered(answer(message))
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
		Count    int       `json:"count"`
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
	return outcome{position: Position(ack.Sequence), count: ack.Count}
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
	if l.mode != ReadWrite {
		return nil, ErrReadOnly
	}
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

// publish sends a message while the connection is open. What nats.go keeps while it reconnects would be sent behind a
// failure that was told already.
func (l *Log) publish(message *nats.Msg) error {
	if !l.conn.IsConnected() {
		return fmt.Errorf("nothing was sent: %w", nats.ErrDisconnected)
	}
	if err := l.conn.PublishMsg(message); err != nil {
		return fmt.Errorf("nothing was sent: %w", err)
	}
	return nil
}

// publishAnswered sends a message and has its outcome told, unless it returns an error.
func (l *Log) publishAnswered(message *nats.Msg, answered func(outcome)) (uint64, error) {
	number, err := l.appends.register(answered)
	if err != nil {
		return 0, err
	}
	message.Reply = l.appends.prefix + strconv.FormatUint(number, 36)
	if err := l.publish(message); err != nil && l.appends.forget(number) {
		return 0, err
	}
	return number, nil
}

// appendAlone sends a message that is in no batch, and waits.
func (l *Log) appendAlone(ctx context.Context, message *nats.Msg) (Position, error) {
	positions, err := l.appendEach(ctx, []*nats.Msg{message})
	if err != nil {
		return 0, err
	}
	return positions[0], nil
}

// appendEach sends messages that are in no batch, all at once, and waits for each.
func (l *Log) appendEach(ctx context.Context, messages []*nats.Msg) ([]Position, error) {
	var failed error
	sent := make([]uint64, 0, len(messages))
	results := make([]chan outcome, 0, len(messages))
	for _, message := range messages {
		result := make(chan outcome, 1)
		number, err := l.publishAnswered(message, func(o outcome) { result <- o })
		if err != nil {
			failed = err
			break
		}
		sent, results = append(sent, number), append(results, result)
	}
	positions := make([]Position, 0, len(messages))
	for at, result := range results {
		select {
		case outcome := <-result:
			if outcome.err != nil {
				return positions, fmt.Errorf("channel %s: %w", l.channel, outcome.err)
			}
			positions = append(positions, outcome.position)
		case <-ctx.Done():
			for _, number := range sent[at:] {
				l.appends.forget(number)
			}
			return positions, fmt.Errorf("%w: %w", ErrUncertain, ctx.Err())
		}
	}
	return positions, failed
}

// Append adds a record. When it returns without an error the record is durable, at the position that it tells.
// Appends that several goroutines make at the same time go to the broker together.
func (l *Log) Append(ctx context.Context, record Record) (Position, error) {
	message, err := l.message(&record, false)
	if err != nil {
		return 0, err
	}
	if !l.group.takes(&record) {
		return l.appendAlone(ctx, message)
	}
	return l.group.append(ctx, message, record.size())
}

// AppendMany adds records in their order. It tells the positions of those that are durable, in front, and the error
// of the first one that is not (those behind it may be there).
func (l *Log) AppendMany(ctx context.Context, records []Record) ([]Position, error) {
	messages := make([]*nats.Msg, len(records))
	for at := range records {
		var err error
		if messages[at], err = l.message(&records[at], false); err != nil {
			return nil, fmt.Errorf("record %d: %w", at, err)
		}
	}
	positions := make([]Position, 0, len(records))
	for len(positions) < len(records) {
		from := len(positions)
		here, end, err := []Position(nil), 0, error(nil)
		if some := l.group.first(records[from:]); some > 0 {
			end = from + some
			size := 0
			for at := range records[from:end] {
				size += records[from+at].size()
			}
			here, err = l.group.appendTogether(ctx, messages[from:end], size)
		} else {
			for end = from + 1; end < len(records) && !l.group.takes(&records[end]); end++ {
			}
			here, err = l.appendEach(ctx, messages[from:end])
		}
		positions = append(positions, here...)
		if err != nil {
			return positions, err
		}
	}
	return positions, nil
}

// Tell sends a transient record to those who follow the channel: in its place behind what was appended before,
// and not stored. It tells the last position before it.
func (l *Log) Tell(ctx context.Context, record Record) (Position, error) {
	message, err := l.message(&record, true)
	if err != nil {
		return 0, err
	}
	return l.appendAlone(ctx, message)
}
