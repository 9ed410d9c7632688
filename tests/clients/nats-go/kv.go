// K01 to K07: the key-value store.
package main

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var keyValue = []scenario{
	{"K01", defaultLimit, kvPutGet},
	{"K02", defaultLimit, kvCreateUpdate},
	{"K03", defaultLimit, kvWatch},
	{"K04", defaultLimit, kvHistory},
	{"K05", defaultLimit, kvKeysAndPurge},
	{"K06", defaultLimit, kvTTL},
	{"K07", defaultLimit, kvStatus},
}

func bucket(c *ctx, cfg jetstream.KeyValueConfig) jetstream.KeyValue {
	cfg.Bucket = c.id
	c.owns("KV_" + c.id)
	return must(c.js.CreateKeyValue(c, cfg))
}

func expectKeyNotFound(c *ctx, kv jetstream.KeyValue, key string) {
	_, err := kv.Get(c, key)
	expectErr(err, jetstream.ErrKeyNotFound)
}

// update is what a watcher tells; end is its mark after the initial values.
type update struct {
	key, value string
	op         jetstream.KeyValueOp
}

var end = update{key: "(end of initial values)"}

func nextUpdates(w jetstream.KeyWatcher, count int) []update {
	out := []update{}
	for range count {
		select {
		case e := <-w.Updates():
			if e == nil {
				out = append(out, end)
			} else {
				out = append(out, update{e.Key(), string(e.Value()), e.Operation()})
			}
		case <-time.After(patience):
			fail("no update within 5 s, after %v", out)
		}
	}
	return out
}

func kvPutGet(c *ctx) {
	kv := bucket(c, jetstream.KeyValueConfig{History: 3})
	equal(must(kv.Put(c, "a.b", []byte("one"))), uint64(1), "revision")
	equal(must(kv.Put(c, "a.b", []byte("two"))), uint64(2), "revision")
	entry := must(kv.Get(c, "a.b"))
	equal([]any{entry.Key(), string(entry.Value()), entry.Revision()}, []any{"a.b", "two", uint64(2)}, "entry")
	equal(string(must(kv.GetRevision(c, "a.b", 1)).Value()), "one", "old revision")
	expectKeyNotFound(c, kv, "none")
}

func kvCreateUpdate(c *ctx) {
	kv := bucket(c, jetstream.KeyValueConfig{})
	equal(must(kv.Create(c, "k", []byte("1"))), uint64(1), "create")
	_, err := kv.Create(c, "k", []byte("2"))
	expectErr(err, jetstream.ErrKeyExists)
	_, err = kv.Update(c, "k", []byte("2"), 9)
	expectCode(err, 10071)
	equal(must(kv.Update(c, "k", []byte("2"), 1)), uint64(2), "update")
	ok(kv.Delete(c, "k"))
	expectKeyNotFound(c, kv, "k")
	equal(must(kv.Create(c, "k", []byte("3"))), uint64(4), "create after the delete")
	equal(string(must(kv.Get(c, "k")).Value()), "3", "value")
}

func kvWatch(c *ctx) {
	kv := bucket(c, jetstream.KeyValueConfig{})
	want := []update{}
	for _, key := range []string{"a.1", "a.2", "b"} {
		must(kv.PutString(c, key, key))
		want = append(want, update{key, key, jetstream.KeyValuePut})
	}
	all := must(kv.WatchAll(c))
	equal(nextUpdates(all, 4), append(slices.Clone(want), end), "initial values")
	must(kv.PutString(c, "c", "new"))
	ok(kv.Delete(c, "b"))
	changes := []update{{"c", "new", jetstream.KeyValuePut}, {"b", "", jetstream.KeyValueDelete}}
	equal(nextUpdates(all, 2), changes, "updates")
	ok(all.Stop())
	some := must(kv.Watch(c, "a.*"))
	equal(nextUpdates(some, 3), []update{want[0], want[1], end}, "wildcard")
	ok(some.Stop())
}

func kvHistory(c *ctx) {
	kv := bucket(c, jetstream.KeyValueConfig{History: 5})
	for i := range 7 {
		must(kv.PutString(c, "k", strconv.Itoa(i)))
	}
	ok(kv.Delete(c, "k"))
	got := ""
	entries := must(kv.History(c, "k"))
	for _, e := range entries {
		got += string(e.Value())
	}
	equal(got, "3456", "history")
	equal(len(entries), 5, "entries")
	equal(entries[4].Operation(), jetstream.KeyValueDelete, "the last entry")
}

func kvKeysAndPurge(c *ctx) {
	kv := bucket(c, jetstream.KeyValueConfig{History: 5})
	for _, key := range []string{"a", "b", "c", "a"} {
		must(kv.PutString(c, key, "x"))
	}
	keys := must(kv.Keys(c))
	slices.Sort(keys)
	equal(keys, []string{"a", "b", "c"}, "keys")
	ok(kv.Delete(c, "b"))
	ok(kv.Purge(c, "a"))
	equal(must(kv.Keys(c)), []string{"c"}, "keys after delete and purge")
	entries := must(kv.History(c, "a"))
	equal(len(entries), 1, "history of the purged key")
	equal(entries[0].Operation(), jetstream.KeyValuePurge, "history of the purged key")
	expectKeyNotFound(c, kv, "a")
}

func kvTTL(c *ctx) {
	kv := bucket(c, jetstream.KeyValueConfig{TTL: 3 * time.Second})
	must(kv.PutString(c, "k", "x"))
	equal(string(must(kv.Get(c, "k")).Value()), "x", "value")
	until(patience, "the value expires", func() bool {
		_, err := kv.Get(c, "k")
		return errors.Is(err, jetstream.ErrKeyNotFound)
	})
}

func kvStatus(c *ctx) {
	kv := bucket(c, jetstream.KeyValueConfig{History: 4})
	for i := range 3 {
		must(kv.PutString(c, "k"+strconv.Itoa(i), "x"))
	}
	status := must(kv.Status(c))
	equal([]any{status.Bucket(), status.Values(), status.History()}, []any{"K07", uint64(3), int64(4)}, "status")
	names := []string{}
	for name := range c.js.KeyValueStoreNames(c).Name() {
		names = append(names, name)
	}
	check(slices.Contains(names, "K07"), "not in the names: %v", names)
	must(c.js.KeyValue(c, "K07"))
	ok(c.js.DeleteKeyValue(c, "K07"))
	_, err := c.js.KeyValue(c, "K07")
	expectErr(err, jetstream.ErrBucketNotFound)
}
