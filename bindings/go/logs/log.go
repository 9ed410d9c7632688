package logs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	apiTimeout     = 30 * time.Second // of a call with its repetitions
	tryTimeout     = 5 * time.Second
	streamNotFound = 10059
	nameInUse      = 10058
	writerFenced   = 20001
	writerNotOpen  = 20002
)

// Options of a channel that is made by its first writer. The zero value keeps everything on disk.
type Options struct {
	// MaxAge, MaxBytes: older records go. Zero: nothing goes unless it is truncated.
	MaxAge   time.Duration
	MaxBytes int64
	// RepeatWindow is how long IDs are remembered. Zero: two minutes.
	RepeatWindow time.Duration
	// Replicas is how many nodes of a cluster keep the channel. Zero: one.
	Replicas int
	// Memory keeps the channel in memory.
	Memory bool
	// Tags choose where the broker places the channel, such as "log:cold" for a log of this name.
	Tags []string
}

// Log is an open channel. Its methods may be called by several goroutines.
type Log struct {
	conn    *nats.Conn
	channel string
	stream  string
	subject string
	term    uint64
	mode    Mode
	appends *appends
	group   *group
}

// Bounds of a channel.
type Bounds struct {
	// First and Last position; First is Last+1 where nothing is left.
	First, Last Position
}

// Open opens a channel. With [ReadWrite] it is made if it is not there, and every writer with a lower term is
// fenced; the same term may be opened again, by whoever owns it.
func Open(ctx context.Context, conn *nats.Conn, channel string, term uint64, mode Mode, options Options) (*Log, error) {
	if channel == "" {
		return nil, errors.New("a channel has a name")
	}
	if mode == ReadWrite && term == 0 {
		return nil, errors.New("a writer's term is at least 1")
	}
	stream := StreamName(channel)
	log := &Log{conn: conn, channel: channel, stream: stream, subject: "nuthatch.log." + stream, term: term, mode: mode}
	info, err := log.info(ctx)
	if mode == ReadWrite && errors.Is(err, ErrNoChannel) {
		if err := log.create(ctx, options); err != nil {
			return nil, err
		}
		info, err = log.info(ctx)
	}
	if err != nil {
		return nil, err
	}
	if mode == ReadOnly {
		return log, nil
	}
	if err := log.api(ctx, "STREAM.FENCE."+stream, map[string]any{"term": term}, nil); err != nil {
		return nil, err
	}
	appends, err := newAppends(conn)
	if err != nil {
		return nil, err
	}
	log.appends = appends
	log.group = newGroup(log, info.Config.Atomic)
	return log, nil
}

// Delete removes a channel with everything in it.
func Delete(ctx context.Context, conn *nats.Conn, channel string) error {
	log := &Log{conn: conn, channel: channel, stream: StreamName(channel)}
	return log.api(ctx, "STREAM.DELETE."+log.stream, nil, nil)
}

// StreamName is the stream that a channel is: its name, with what no stream's name may hold as =XX.
func StreamName(channel string) string {
	var name strings.Builder
	for _, b := range []byte(channel) {
		if b <= ' ' || b == 0x7f || strings.IndexByte(".*>/\\=", b) >= 0 {
			fmt.Fprintf(&name, "=%02X", b)
		} else {
			name.WriteByte(b)
		}
	}
	return name.String()
}

// Channel is the name that the log was opened with.
func (l *Log) Channel() string { return l.channel }

// Term is what the log was opened with.
func (l *Log) Term() uint64 { return l.term }

// Mode is what the log was opened for.
func (l *Log) Mode() Mode { return l.mode }

// Stream is the name of the channel's stream.
func (l *Log) Stream() string { return l.stream }

func (l *Log) create(ctx context.Context, options Options) error {
	config := map[string]any{
		"name": l.stream, "subjects": []string{l.subject}, "storage": "file", "retention": "limits", "discard": "old",
		"max_msgs": -1, "max_bytes": -1, "max_age": options.MaxAge, "num_replicas": max(options.Replicas, 1), "allow_direct": true,
		"allow_atomic": true, "deny_delete": true, "metadata": map[string]string{"nuthatch.channel": l.channel},
	}
	if options.Memory {
		config["storage"] = "memory"
	}
	if options.MaxBytes > 0 {
		config["max_bytes"] = options.MaxBytes
	}
	if options.RepeatWindow > 0 {
		config["duplicate_window"] = options.RepeatWindow
	}
	if len(options.Tags) > 0 {
		config["placement"] = map[string]any{"tags": options.Tags}
	}
	err := l.api(ctx, "STREAM.CREATE."+l.stream, config, nil)
	var refused *APIError
	if errors.As(err, &refused) && refused.Code == nameInUse {
		return nil // somebody else has just made it, with other options
	}
	return err
}

// streamInfo is what the package reads of a stream's information.
type streamInfo struct {
	Config struct {
		Atomic bool `json:"allow_atomic"`
	} `json:"config"`
	State struct {
		First uint64 `json:"first_seq"`
		Last  uint64 `json:"last_seq"`
	} `json:"state"`
}

func (l *Log) info(ctx context.Context) (streamInfo, error) {
	var info streamInfo
	err := l.api(ctx, "STREAM.INFO."+l.stream, nil, &info)
	return info, err
}

// Bounds tells the first and last position.
func (l *Log) Bounds(ctx context.Context) (Bounds, error) {
	info, err := l.info(ctx)
	if err != nil {
		return Bounds{}, err
	}
	first := max(info.State.First, 1)
	return Bounds{First: Position(first), Last: Position(info.State.Last)}, nil
}

// Truncate removes every record up to this position, which included; their space is given back.
func (l *Log) Truncate(ctx context.Context, through Position) error {
	if l.mode != ReadWrite {
		return ErrReadOnly
	}
	bounds, err := l.Bounds(ctx)
	if err != nil {
		return err
	}
	// A purge to a sequence that is not there yet would leave a gap.
	before := min(through, bounds.Last) + 1
	return l.api(ctx, "STREAM.PURGE."+l.stream, map[string]any{"seq": before, "term": l.term}, nil)
}

// Close ends the log's appends. The channel stays, and so does its term.
func (l *Log) Close() {
	if l.appends != nil {
		l.appends.close(ErrClosed)
	}
}

// APIError is a refusal of the broker.
type APIError struct {
	Status int    `json:"code"`
	Code   int    `json:"err_code"`
	Text   string `json:"description"`
}

func (e *APIError) Error() string { return fmt.Sprintf("%s (%d)", e.Text, e.Code) }

// Unwrap gives the kind of the error, such as [ErrFenced], if it has one.
func (e *APIError) Unwrap() error {
	switch e.Code {
	case writerFenced:
		return ErrFenced
	case writerNotOpen:
		return ErrNotOpen
	case streamNotFound:
		return ErrNoChannel
	}
	return nil
}

// request repeats a call that nobody answers: while a cluster has no owner of its log there is none. All calls
// of this package may be repeated.
func (l *Log) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	for {
		try, end := context.WithTimeout(ctx, tryTimeout)
		message, err := l.conn.RequestWithContext(try, subject, body)
		end()
		unanswered := errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded)
		if !unanswered || ctx.Err() != nil {
			return message, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryPause):
		}
	}
}

func (l *Log) api(ctx context.Context, call string, request any, answer any) error {
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	message, err := l.request(ctx, "$JS.API."+call, body)
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	var refused struct {
		Error *APIError `json:"error"`
	}
	if err := json.Unmarshal(message.Data, &refused); err != nil {
		return fmt.Errorf("%s: the answer is not understood: %w", call, err)
	}
	if refused.Error != nil {
		return fmt.Errorf("channel %s: %w", l.channel, refused.Error)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(message.Data, answer)
}
