package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"slices"
	"time"

	"github.com/zilliztech/woodpecker/woodpecker/log"
)

// Bodies do not compress; they are slices of one pool at offsets within so many bytes, so that making
// the next one costs nothing. Distance between the offsets of two of them; odd, so that all are visited.
const (
	bodySpread = 256 << 10
	bodyStep   = 4099
)

// Places at which messages are read back, how many at each, and how long that may take.
const (
	readPlaces  = 5
	readRun     = 20
	readTimeout = 60 * time.Second
)

// The longest that a load may take.
const loadTimeout = 10 * time.Minute

// load is what is to be measured: so many messages of one writer on a new log, so many of them on
// their way at a time.
type load struct {
	Messages int `json:"messages"`
	Size     int `json:"size"`
	Window   int `json:"window"`
}

// loadResult is what was found. Waits are from the call that writes to the result that it gave.
type loadResult struct {
	MsgsPerS float64 `json:"msgs_per_s"`
	P50Us    float64 `json:"p50_us"`
	P99Us    float64 `json:"p99_us"`
}

// readResult is how many messages were read back, and were the ones acknowledged under their ids.
type readResult struct {
	ReadBack int `json:"read_back"`
}

// written is a message on its way.
type written struct {
	at     time.Time
	result <-chan *log.WriteResult
}

// measure writes to a new log, tells what was found, reads some of it back, and tells how much.
func (s *service) measure(ctx context.Context, asked load, tell func(any) error) error {
	if asked.Messages < 1 || asked.Size < 1 || asked.Window < 1 {
		return fmt.Errorf("no such load: %+v", asked)
	}
	ctx, giveUp := context.WithTimeoutCause(ctx, loadTimeout, fmt.Errorf("not done within %v", loadTimeout))
	defer giveUp()
	body := bodies(asked.Size)
	handle, writer, err := s.newLog(ctx, body(0))
	if err != nil {
		return err
	}
	defer handle.Close(context.Background())
	defer writer.Close(context.Background())
	found, ids, err := writeAll(ctx, writer, asked, body)
	if err != nil {
		return err
	}
	if err := tell(found); err != nil {
		return err
	}
	read, err := readBack(ctx, handle, ids, body)
	if err != nil {
		return err
	}
	return tell(readResult{read})
}

// newLog makes a log and writes its first message, which is not counted: with it the log gets its
// segment. Woodpecker looks for nodes until there are enough, and says why only in its own log.
func (s *service) newLog(ctx context.Context, first []byte) (log.LogHandle, log.LogWriter, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	timer := time.AfterFunc(serviceTimeout, func() { giveUp(fmt.Errorf("not done within %v", serviceTimeout)) })
	defer timer.Stop()
	s.logs++
	name := fmt.Sprintf("bench-%d", s.logs)
	if err := s.client.CreateLog(ctx, name); err != nil {
		return nil, nil, fmt.Errorf("create %s: %w", name, err)
	}
	handle, err := s.client.OpenLog(ctx, name)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", name, err)
	}
	writer, err := handle.OpenLogWriter(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("open the writer of %s: %w", name, err)
	}
	if _, err := await(ctx, writer.WriteAsync(ctx, &log.WriteMessage{Payload: first})); err != nil {
		return nil, nil, fmt.Errorf("first write to %s: %w", name, err)
	}
	return handle, writer, nil
}

// bodies gives the body of each message, by its number.
func bodies(size int) func(int) []byte {
	pool := make([]byte, size+bodySpread)
	rand.New(rand.NewSource(int64(size))).Read(pool)
	return func(index int) []byte {
		offset := index * bodyStep % bodySpread
		return pool[offset : offset+size]
	}
}

// writeAll keeps the window full. Results come in the order of the writes.
func writeAll(ctx context.Context, writer log.LogWriter, asked load, body func(int) []byte) (*loadResult, []log.LogMessageId, error) {
	free := make(chan struct{}, asked.Window)
	inFlight := make(chan written, asked.Window)
	started := time.Now()
	failed := make(chan struct{})
	go func() {
		defer close(inFlight)
		for index := range asked.Messages {
			select {
			case free <- struct{}{}:
			case <-failed:
				return
			}
			at := time.Now()
			inFlight <- written{at, writer.WriteAsync(ctx, &log.WriteMessage{Payload: body(index)})}
		}
	}()
	defer close(failed)
	took := make([]time.Duration, 0, asked.Messages)
	ids := make([]log.LogMessageId, 0, asked.Messages)
	for one := range inFlight {
		id, err := await(ctx, one.result)
		if err != nil {
			return nil, nil, fmt.Errorf("write %d: %w", len(ids), err)
		}
		took, ids = append(took, time.Since(one.at)), append(ids, *id)
		<-free
	}
	seconds := time.Since(started).Seconds()
	slices.Sort(took)
	at := func(part float64) float64 {
		return float64(took[int(part*float64(len(took)-1))].Nanoseconds()) / 1e3
	}
	return &loadResult{MsgsPerS: float64(len(took)) / seconds, P50Us: at(0.5), P99Us: at(0.99)}, ids, nil
}

func await(ctx context.Context, result <-chan *log.WriteResult) (*log.LogMessageId, error) {
	select {
	case one := <-result:
		return one.LogMessageId, one.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readBack reads some messages in a row at several places, the last ones among them, from where they
// were acknowledged, and compares their ids and bodies. It gives their number.
func readBack(ctx context.Context, handle log.LogHandle, ids []log.LogMessageId, body func(int) []byte) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	run := min(readRun, len(ids))
	read := 0
	for place := range readPlaces {
		first := (len(ids) - run) * place / (readPlaces - 1)
		reader, err := handle.OpenLogReader(ctx, &ids[first], fmt.Sprintf("bench-%d", place))
		if err != nil {
			return read, fmt.Errorf("open a reader at %+v: %w", ids[first], err)
		}
		for index := first; index < first+run; index++ {
			message, err := reader.ReadNext(ctx)
			if err != nil {
				return read, fmt.Errorf("read back %+v: %w", ids[index], err)
			}
			if *message.Id != ids[index] || !bytes.Equal(message.Payload, body(index)) {
				return read, fmt.Errorf("message %d was acknowledged as %+v, and something else was read there: %+v", index, ids[index], *message.Id)
			}
			read++
		}
		reader.Close(ctx)
	}
	return read, nil
}
