package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/milvus-io/milvus/pkg/v2/streaming/util/options"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/types"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"
	"github.com/milvus-io/milvus/pkg/v2/util/paramtable"
)

const patience = 2 * time.Minute

// database is what a log feeds: rows that were applied, and those of them that were flushed, which need no log any more.
type database struct {
	rows, flushed map[string]bool
}

func openWAL(t *testing.T, builder walimpls.OpenerBuilderImpls, term int64) walimpls.WALImpls {
	t.Helper()
	opener, err := builder.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opener.Close)
	channel := types.PChannelInfo{Name: "by-dev-rootcoord-dml_0", Term: term, AccessMode: types.AccessModeRW}
	w, err := opener.Open(context.Background(), &walimpls.OpenOption{Channel: channel})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// insert rows, one after the other, and apply them as the log gives them.
func (d *database) insert(t *testing.T, w walimpls.WALImpls, name string, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	option := walimpls.ReadOption{Name: name, DeliverPolicy: options.DeliverPolicyAll(), ReadAheadBufferSize: 64}
	scanner, err := w.Read(ctx, option)
	if err != nil {
		t.Fatal(err)
	}
	defer scanner.Close()
	wanted := map[string]bool{}
	for n := range count {
		id := fmt.Sprint(name, " ", n)
		if _, err := w.Append(ctx, record(map[string]string{"id": id})); err != nil {
			t.Fatal(err)
		}
		wanted[id] = true
	}
	for len(wanted) > 0 {
		select {
		case msg, open := <-scanner.Chan():
			if !open {
				t.Fatal("the scanner has ended", scanner.Error())
			}
			if id, ok := msg.Properties().Get("id"); ok {
				d.rows[id] = true
				delete(wanted, id)
			}
		case <-ctx.Done():
			t.Fatalf("%d rows do not come", len(wanted))
		}
	}
}

// The steps of the documentation with Milvus's own RocksMQ and the interface of its logs: stop the writers, flush, switch,
// verify. The new log begins empty, and no row is missing or there twice.
func TestFromRocksMQ(t *testing.T) {
	paramtable.InitWithBaseTable(paramtable.NewBaseTableFromYamlOnly("none"))
	dir := t.TempDir()
	d := &database{rows: map[string]bool{}, flushed: map[string]bool{}}
	builder, end, err := build("rmq", filepath.Join(dir, "rmq"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	old := openWAL(t, builder, 1)
	d.insert(t, old, "before", 500)
	// 1. Writers have stopped. 2. FlushAll.
	maps.Copy(d.flushed, d.rows)
	old.Close()
	// 3. and 4. Switch: what was not flushed would be gone now.
	d.rows = maps.Clone(d.flushed)
	builder, end, err = build("nuthatch", filepath.Join(dir, "nuthatch"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	fresh := openWAL(t, builder, 2)
	t.Cleanup(fresh.Close)
	// 5. Verify.
	d.insert(t, fresh, "after", 100)
	names := slices.Collect(maps.Keys(d.rows))
	if len(names) != 600 {
		t.Errorf("%d rows, not 600", len(names))
	}
	for n := range 500 {
		if !d.rows[fmt.Sprint("before ", n)] {
			t.Errorf("row %d of before is missing", n)
		}
	}
	// The new log has what was written to it, and nothing of the old one.
	again := &database{rows: map[string]bool{}}
	again.insert(t, fresh, "later", 1)
	if len(again.rows) != 101 {
		t.Errorf("the log has %d rows, not 101", len(again.rows))
	}
}
