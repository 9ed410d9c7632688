// O01 to O05: the object store.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"math/rand"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var objects = []scenario{
	{"O01", defaultLimit, objPutGet},
	{"O02", 2 * defaultLimit, fiftyMegabytes},
	{"O03", defaultLimit, objOverwrite},
	{"O04", defaultLimit, objWatch},
	{"O05", defaultLimit, objStatus},
}

func store(c *ctx) jetstream.ObjectStore {
	c.owns("OBJ_" + c.id)
	return must(c.js.CreateObjectStore(c, jetstream.ObjectStoreConfig{Bucket: c.id}))
}

func random(seed int64, size int) []byte {
	data := make([]byte, size)
	rand.New(rand.NewSource(seed)).Read(data)
	return data
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
}

func objPutGet(c *ctx) {
	obj := store(c)
	data := random(1, 300_000)
	put := must(obj.PutBytes(c, "an object", data))
	equal([]any{put.Name, put.Size, put.Chunks}, []any{"an object", uint64(300_000), uint32(3)}, "put")
	info := must(obj.GetInfo(c, "an object"))
	equal([]any{info.Size, info.Chunks, info.Digest}, []any{uint64(300_000), uint32(3), digest(data)}, "info")
	check(bytes.Equal(must(obj.GetBytes(c, "an object")), data), "content differs")
	list := must(obj.List(c))
	equal(len(list), 1, "list")
	equal(list[0].Name, "an object", "list")
	ok(obj.Delete(c, "an object"))
	_, err := obj.GetBytes(c, "an object")
	expectErr(err, jetstream.ErrObjectNotFound)
}

func fiftyMegabytes(c *ctx) {
	obj := store(c)
	data := random(2, 50*1024*1024)
	put := must(obj.Put(c, jetstream.ObjectMeta{Name: "big"}, bytes.NewReader(data)))
	equal([]any{put.Size, put.Digest}, []any{uint64(len(data)), digest(data)}, "put")
	result := must(obj.Get(c, "big"))
	sum := sha256.New()
	size := must(io.Copy(sum, result))
	ok(result.Error())
	want := sha256.Sum256(data)
	equal(size, int64(len(data)), "size")
	equal(sum.Sum(nil), want[:], "SHA-256")
}

func objOverwrite(c *ctx) {
	obj := store(c)
	must(obj.PutBytes(c, "o", make([]byte, 500_000)))
	must(obj.PutString(c, "o", "second"))
	equal(must(obj.GetString(c, "o")), "second", "content")
	s := must(c.js.Stream(c, "OBJ_O03"))
	until(patience, "chunks of the first object are purged", func() bool { return c.state(s).Msgs == 2 })
}

func objWatch(c *ctx) {
	obj := store(c)
	w := must(obj.Watch(c))
	type event struct {
		name    string
		deleted bool
	}
	next := func() *event {
		select {
		case info := <-w.Updates():
			if info == nil {
				return nil
			}
			return &event{info.Name, info.Deleted}
		case <-time.After(patience):
			fail("no event within 5 s")
			return nil
		}
	}
	check(next() == nil, "end of initial values")
	must(obj.PutString(c, "one", "1"))
	must(obj.PutString(c, "two", "2"))
	ok(obj.Delete(c, "one"))
	for _, want := range []event{{"one", false}, {"two", false}, {"one", true}} {
		equal(next(), &want, "event")
	}
	ok(w.Stop())
}

func objStatus(c *ctx) {
	obj := store(c)
	must(obj.PutBytes(c, "o", make([]byte, 1000)))
	status := must(obj.Status(c))
	equal(status.Bucket(), "O05", "bucket")
	check(status.Size() > 1000, "size %d", status.Size())
	ok(c.js.DeleteObjectStore(c, "O05"))
	_, err := c.js.ObjectStore(c, "O05")
	expectErr(err, jetstream.ErrBucketNotFound)
}
