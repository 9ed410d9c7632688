package logs_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"nuthatch/embed/logs"
)

// A node that dies takes the answers with it that it owed; those who append afterwards do not wait for them.
func TestAnswersThatNeverComeHoldUpNobodyForLong(t *testing.T) {
	broker := broker(t, t.TempDir())
	defer broker.Close()
	conn, other := connect(t, broker), connect(t, broker)
	log := writer(t, conn, 1)
	must[logs.Position](t)(log.Append(patient(t), record("answered")))
	if err := logs.Delete(patient(t), other, log.Channel()); err != nil {
		t.Fatal(err)
	}
	// Takes what is for the channel, and says nothing.
	silent, err := other.Subscribe("nuthatch.log."+log.Stream(), func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	short, end := context.WithTimeout(patient(t), 300*time.Millisecond)
	defer end()
	var group sync.WaitGroup
	for range 50 {
		group.Add(1)
		go func() {
			defer group.Done()
			if _, err := log.Append(short, record("lost")); !errors.Is(err, logs.ErrUncertain) {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	if err := errors.Join(silent.Unsubscribe(), other.Flush()); err != nil {
		t.Fatal(err)
	}
	writer(t, other, 1)
	records := numbered(200)
	positions, errs := appendFromMany(t, log, records)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	is(t, log, records, positions)
}

// Each append ends once, with an error or a position, however often its connection breaks.
func TestConnectionsBreakWhileManyAppend(t *testing.T) {
	broker := broker(t, t.TempDir())
	defer broker.Close()
	for range 6 {
		conn := connect(t, broker)
		log := writer(t, conn, 1)
		ctx, end := context.WithTimeout(patient(t), 20*time.Second)
		var group sync.WaitGroup
		for range 64 {
			group.Add(1)
			go func() {
				defer group.Done()
				for range 40 {
					if _, err := log.Append(ctx, record("some")); errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
						return
					}
				}
			}()
		}
		for range 3 {
			time.Sleep(time.Millisecond)
			if err := conn.ForceReconnect(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Millisecond)
		conn.Close()
		group.Wait()
		end()
	}
}

func TestPropertiesCountForTheSizeOfABatch(t *testing.T) {
	broker := broker(t, t.TempDir())
	defer broker.Close()
	log := writer(t, connect(t, broker), 1)
	records := numbered(100)
	large := logs.Record{Data: []byte("x"), Properties: map[string]string{"large": strings.Repeat("x", 64<<20)}}
	_, errs := appendFromMany(t, log, append(records, large))
	if errs[len(records)] == nil {
		t.Error("64 MiB of properties are taken")
	}
	if err := errors.Join(errs[:len(records)]...); err != nil {
		t.Error(err)
	}
}
