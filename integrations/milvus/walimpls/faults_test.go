//go:build test

package walimpls

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milvus-io/milvus/pkg/v2/streaming/util/message"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/options"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/types"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"

	"nuthatch/milvus"
)

// acked is what appends have told: the position of each id.
type acked struct {
	mu sync.Mutex
	at map[string]message.MessageID
}

func (a *acked) add(id string, at message.MessageID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[id] = at
}

func (a *acked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

func insert(id string) message.MutableMessage {
	return message.CreateTestEmptyInsertMesage(1, map[string]string{"id": id})
}

func idOf(msg message.ImmutableMessage) string {
	id, _ := msg.Properties().Get("id")
	return id
}

// collect reads until it has met the id last.
func collect(t *testing.T, s walimpls.ScannerImpls, last string) []message.ImmutableMessage {
	var all []message.ImmutableMessage
	for msg := range s.Chan() {
		if len(all) > 0 && !all[len(all)-1].MessageID().LT(msg.MessageID()) {
			t.Errorf("%s: %v behind %v", s.Name(), msg.MessageID(), all[len(all)-1].MessageID())
		}
		all = append(all, msg)
		if idOf(msg) == last {
			return all
		}
	}
	t.Errorf("%s ended: %v", s.Name(), s.Error())
	return all
}

// The server is killed and started again while appends and readers of every policy go on. Nothing that was
// acknowledged is lost, moved or doubled, no reader misses or repeats anything. What an embedded log keeps of this when its
// process is killed is TestKilledWithItsProcess.
func TestKilledAndRestarted(t *testing.T) {
	t.Run("server", func(t *testing.T) { killAndRestart(t, startServer(t, ""), nil) })
	t.Run("bucket", func(t *testing.T) { killAndRestart(t, startServer(t, inBucket(t)), []string{"log:cold"}) })
}

func killAndRestart(t *testing.T, s *server, tags []string) {
	ctx := patient(t)
	opener := build(t, milvus.Config{Engine: s.url(), Tags: tags})
	w := open(t, opener, "killed", 1, types.AccessModeRW)
	told := &acked{at: map[string]message.MessageID{}}
	first, err := w.Append(ctx, insert("first"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(ctx, insert("second")); err != nil {
		t.Fatal(err)
	}
	policies := map[string]options.DeliverPolicy{
		"all":         options.DeliverPolicyAll(),
		"latest":      options.DeliverPolicyLatest(),
		"start from":  options.DeliverPolicyStartFrom(first),
		"start after": options.DeliverPolicyStartAfter(first),
	}
	var readers sync.WaitGroup
	read := map[string][]message.ImmutableMessage{}
	var mu sync.Mutex
	for name, policy := range policies {
		scanner, err := w.Read(ctx, walimpls.ReadOption{Name: name, DeliverPolicy: policy})
		if err != nil {
			t.Fatal(err)
		}
		readers.Add(1)
		go func() {
			defer readers.Done()
			all := collect(t, scanner, "last")
			mu.Lock()
			read[name] = all
			mu.Unlock()
			if err := scanner.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	var stop atomic.Bool
	var failed atomic.Int64
	var appenders sync.WaitGroup
	for n := range 4 {
		appenders.Add(1)
		go func() {
			defer appenders.Done()
			for i := 0; !stop.Load(); i++ {
				id := fmt.Sprintf("%d-%d", n, i)
				at, err := w.Append(ctx, insert(id))
				switch {
				case err == nil:
					told.add(id, at)
				case errors.Is(err, walimpls.ErrFenced):
					t.Error(err)
					return
				default: // whether it is there is not known
					failed.Add(1)
					time.Sleep(10 * time.Millisecond)
				}
			}
		}()
	}
	for range 4 {
		wanted := told.count() + 200
		for told.count() < wanted && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		s.kill()
		s.start()
	}
	stop.Store(true)
	appenders.Wait()
	for {
		if _, err := w.Append(ctx, insert("last")); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
	if failed.Load() == 0 {
		t.Error("no append noticed a crash")
	}
	checkRead(t, told, read)
	t.Logf("%d acknowledged, %d failed over 4 crashes", told.count(), failed.Load())
}

// checkRead compares what readers got with what was acknowledged, and with each other.
func checkRead(t *testing.T, told *acked, read map[string][]message.ImmutableMessage) {
	checkReadFrom(t, told, read, map[string]int{"start from": 0, "start after": 1, "latest": 2})
}

// checkReadFrom does it for readers that began so many messages behind the first one.
func checkReadFrom(t *testing.T, told *acked, read map[string][]message.ImmutableMessage, skips map[string]int) {
	all := read["all"]
	seen := map[string]message.MessageID{}
	for _, msg := range all {
		id := idOf(msg)
		if before, ok := seen[id]; ok && id != "last" {
			t.Errorf("%s is there at %v and %v", id, before, msg.MessageID())
		}
		seen[id] = msg.MessageID()
	}
	for id, at := range told.at {
		if found := seen[id]; found == nil || !found.EQ(at) {
			t.Errorf("%s was acknowledged at %v, and is at %v", id, at, found)
		}
	}
	for name, skipped := range skips {
		some := read[name]
		if len(some) != len(all)-skipped {
			t.Errorf("%s: %d messages, not %d", name, len(some), len(all)-skipped)
			continue
		}
		for i, msg := range some {
			if !msg.MessageID().EQ(all[i+skipped].MessageID()) || idOf(msg) != idOf(all[i+skipped]) {
				t.Errorf("%s: %v where all has %v", name, msg.MessageID(), all[i+skipped].MessageID())
			}
		}
	}
}

// Writers are fenced by the next term while they append.
func TestFencedWhileAppending(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) { fenceWhileAppending(t, build(t, place(t))) })
	}
}

func fenceWhileAppending(t *testing.T, opener walimpls.OpenerImpls) {
	ctx := patient(t)
	const terms = 4
	var group sync.WaitGroup
	var opened atomic.Int64 // the highest term that was answered
	started := make(chan struct{}, 64)
	writer := func(term int64, w walimpls.WALImpls) {
		for n := range 4 {
			group.Add(1)
			go func() {
				defer group.Done()
				for i := 0; ; i++ {
					before := opened.Load()
					_, err := w.Append(ctx, insert(fmt.Sprintf("%d %d-%d", term, n, i)))
					if err == nil && before > term {
						t.Errorf("term %d appended after %d was opened", term, before)
						return
					}
					if i == 20 {
						started <- struct{}{}
					}
					if errors.Is(err, walimpls.ErrFenced) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
		for range 4 {
			<-started
		}
	}
	for term := int64(1); term <= terms; term++ {
		w := open(t, opener, "fenced", term, types.AccessModeRW)
		opened.Store(term)
		writer(term, w)
	}
	last := open(t, opener, "fenced", terms+1, types.AccessModeRW)
	group.Wait()
	if _, err := last.Append(ctx, insert("last")); err != nil {
		t.Fatal(err)
	}
	scanner, err := last.Read(ctx, walimpls.ReadOption{Name: "all", DeliverPolicy: options.DeliverPolicyAll()})
	if err != nil {
		t.Fatal(err)
	}
	defer scanner.Close()
	newest := "1"
	for _, msg := range collect(t, scanner, "last") {
		term, _, _ := strings.Cut(idOf(msg), " ")
		if term < newest {
			t.Fatalf("%q behind term %s", idOf(msg), newest)
		}
		newest = term
	}
	option := &walimpls.OpenOption{Channel: types.PChannelInfo{Name: "fenced", Term: 2, AccessMode: types.AccessModeRW}}
	if _, err := opener.Open(ctx, option); !errors.Is(err, walimpls.ErrFenced) {
		t.Fatal(err)
	}
}

// Truncation gives space back.
func TestTruncationFreesSpace(t *testing.T) {
	ctx := patient(t)
	s := startServer(t, "")
	dir, opener := s.dir, build(t, milvus.Config{Engine: s.url()})
	w := open(t, opener, "truncated", 1, types.AccessModeRW)
	body := map[string]string{"id": "large", "fill": strings.Repeat("x", 1<<20)}
	var last message.MessageID
	for range 200 {
		var err error
		if last, err = w.Append(ctx, message.CreateTestEmptyInsertMesage(1, body)); err != nil {
			t.Fatal(err)
		}
	}
	full := bytesOf(t, dir)
	if full < 200<<20 {
		t.Fatalf("%d bytes hold 200 MiB", full)
	}
	if err := w.Truncate(ctx, last); err != nil {
		t.Fatal(err)
	}
	kept, err := w.Append(ctx, insert("kept"))
	if err != nil {
		t.Fatal(err)
	}
	for bytesOf(t, dir) > full-100<<20 {
		if ctx.Err() != nil {
			t.Fatalf("%d bytes before, %d after", full, bytesOf(t, dir))
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d MiB before, %d MiB after", full>>20, bytesOf(t, dir)>>20)
	scanner, err := w.Read(ctx, walimpls.ReadOption{Name: "all", DeliverPolicy: options.DeliverPolicyAll()})
	if err != nil {
		t.Fatal(err)
	}
	defer scanner.Close()
	if msg := <-scanner.Chan(); !msg.MessageID().EQ(kept) {
		t.Fatalf("%v and not %v is first", msg.MessageID(), kept)
	}
}

// bytesOf the files below a directory, but for the reserve that is there from the start.
func bytesOf(t *testing.T, dir string) (total int64) {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || strings.Contains(entry.Name(), "reserve") {
			return err
		}
		if info, err := entry.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}
