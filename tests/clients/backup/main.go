// Backups with the unmodified jsm.go, which `nats stream backup` uses: between two servers of ours and a nats-server, in every
// direction. Each transfer must keep messages, sequences with their gaps, times, configuration and the consumers' progress.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/jsm.go"
	"github.com/nats-io/jsm.go/api"
	"github.com/nats-io/nats.go"
)

const (
	stream   = "S"
	consumer = "C"
	limit    = 2 * time.Minute
)

type server struct {
	name string
	nc   *nats.Conn
	mgr  *jsm.Manager
	// As the nats command has it: it listens on a wildcard for all its answers, and jsm.go subscribes to where the chunks of a
	// snapshot go only when it has the answer.
	muxed *jsm.Manager
}

func must[T any](v T, err error) T {
	ok(err)
	return v
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}

func check(cond bool, format string, args ...any) {
	if !cond {
		panic(fmt.Errorf(format, args...))
	}
}

func until(what string, probe func() bool) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if probe() {
			return
		}
	}
	panic(fmt.Errorf("not within %v: %s", limit, what))
}

func connect(name, url string) *server {
	manager := func(options ...nats.Option) (*nats.Conn, *jsm.Manager) {
		nc := must(nats.Connect(url, append(options, nats.Name("backup test"), nats.Timeout(limit))...))
		return nc, must(jsm.New(nc, jsm.WithTimeout(limit)))
	}
	nc, mgr := manager(nats.UseOldRequestStyle())
	_, muxed := manager()
	return &server{name, nc, mgr, muxed}
}

// fill makes a stream of 40 messages without 1 to 4 and 20, and a consumer that has acknowledged 3 of 6.
func fill(s *server) {
	st := must(s.mgr.NewStream(stream, jsm.Subjects("s.>"), jsm.FileStorage(), jsm.MaxAge(24*time.Hour), jsm.StreamDescription("kept"),
		jsm.StreamMetadata(map[string]string{"color": "red"})))
	for i := 1; i <= 40; i++ {
		msg := nats.NewMsg(fmt.Sprintf("s.%d", i%7))
		msg.Data = []byte(strings.Repeat(fmt.Sprintf("message %d ", i), 100))
		msg.Header.Set("Number", fmt.Sprint(i))
		reply := must(s.nc.RequestMsg(msg, limit))
		check(!jsm.IsErrorResponse(reply), "publish: %s", reply.Data)
	}
	ok(st.Purge(&api.JSApiStreamPurgeRequest{Sequence: 5}))
	ok(st.DeleteMessageRequest(api.JSApiMsgDeleteRequest{Seq: 20}))
	c := must(st.NewConsumer(jsm.DurableName(consumer), jsm.AcknowledgeExplicit(), jsm.AckWait(time.Hour), jsm.FilterStreamBySubject("s.*")))
	for i := range 6 {
		msg := must(c.NextMsg())
		if i%2 == 0 {
			ok(msg.AckSync())
		}
	}
	until("the consumer has settled", func() bool { return must(c.State()).NumAckPending == 3 })
}

// picture is what a backup must keep.
func picture(s *server) map[string]any {
	st := must(s.mgr.LoadStream(stream))
	state := must(st.State())
	config := st.Configuration()
	for key := range config.Metadata {
		if strings.HasPrefix(key, "_nats.") {
			delete(config.Metadata, key)
		}
	}
	messages := []string{}
	for seq := uint64(1); seq <= state.LastSeq; seq++ {
		msg, err := st.ReadMessage(seq)
		if err == nil {
			messages = append(messages, fmt.Sprintf("%d %s %s %x %x", msg.Sequence, msg.Subject, msg.Time.UTC(), msg.Header, msg.Data))
		}
	}
	c := must(st.LoadConsumer(consumer))
	info := must(c.State())
	return map[string]any{
		"messages": messages, "subjects": config.Subjects, "age": config.MaxAge, "metadata": config.Metadata, "text": config.Description,
		"seqs":      []uint64{state.Msgs, state.FirstSeq, state.LastSeq},
		"times":     []time.Time{state.FirstTime.UTC(), state.LastTime.UTC()},
		"delivered": []uint64{info.Delivered.Consumer, info.Delivered.Stream},
		"floor":     []uint64{info.AckFloor.Consumer, info.AckFloor.Stream},
		"open":      []uint64{uint64(info.NumAckPending), info.NumPending},
		"wait":      c.AckWait(),
	}
}

func transfer(from, to *server, opts ...jsm.SnapshotOption) {
	dir := must(os.MkdirTemp("", "nuthatch-jsm-backup"))
	defer os.RemoveAll(dir)
	before := picture(from)
	seen := 0
	opts = append(opts, jsm.SnapshotConsumers(), jsm.SnapshotHealthCheck(), jsm.SnapshotNotify(func(jsm.SnapshotProgress) { seen++ }))
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	progress := must(must(from.muxed.LoadStream(stream)).SnapshotToDirectory(ctx, dir, opts...))
	check(progress.BytesReceived() > 0 && seen > 0, "no progress: %d bytes, %d times", progress.BytesReceived(), seen)
	_, state, err := to.mgr.RestoreSnapshotFromDirectory(ctx, stream, dir)
	ok(err)
	check(state.Msgs == 35, "restored %d messages", state.Msgs)
	after := picture(to)
	for key := range before {
		check(reflect.DeepEqual(before[key], after[key]), "%s:\nwas %v\nis  %v", key, before[key], after[key])
	}
	reply := must(to.nc.Request("s.new", []byte("new"), limit))
	check(strings.Contains(string(reply.Data), `"seq":41`), "the next message: %s", reply.Data)
	_, _, err = to.mgr.RestoreSnapshotFromDirectory(ctx, stream, dir)
	check(err != nil && strings.Contains(err.Error(), "already in use"), "a second restore: %v", err)
	remove(to)
	fmt.Printf("ok   %s to %s\n", from.name, to.name)
}

func remove(s *server) { ok(must(s.mgr.LoadStream(stream)).Delete()) }

// advisories tell of all four steps, and who asked.
func advisories(s *server, during func()) {
	sub := must(s.nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.*." + stream))
	ok(s.nc.Flush())
	during()
	wanted := map[string]bool{"snapshot_create": true, "snapshot_complete": true, "restore_create": true, "restore_complete": true}
	for len(wanted) > 0 {
		msg, err := sub.NextMsg(limit)
		if errors.Is(err, nats.ErrTimeout) {
			panic(fmt.Errorf("no advisory of %v", wanted))
		}
		ok(err)
		var event struct {
			Type   string
			Stream string
			Client *struct{ Name string }
		}
		ok(json.Unmarshal(msg.Data, &event))
		name := strings.TrimPrefix(event.Type, "io.nats.jetstream.advisory.v1.")
		if wanted[name] {
			check(event.Stream == stream && event.Client != nil && event.Client.Name == "backup test", "%s", msg.Data)
			delete(wanted, name)
		}
	}
	ok(sub.Unsubscribe())
	fmt.Println("ok   advisories")
}

// abandoned: a client that goes away in the middle of an upload leaves nothing behind.
func abandoned(s *server) {
	request := api.JSApiStreamRestoreRequest{Config: api.StreamConfig{Name: stream, Subjects: []string{"s.>"}, Storage: api.FileStorage, Replicas: 1,
		MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1}}
	reply := must(s.nc.Request("$JS.API.STREAM.RESTORE."+stream, must(json.Marshal(request)), limit))
	var resp api.JSApiStreamRestoreResponse
	ok(json.Unmarshal(reply.Data, &resp))
	check(resp.DeliverSubject != "", "refused: %s", reply.Data)
	must(s.nc.Request(resp.DeliverSubject, []byte("\xff\x06\x00\x00S2sTwO"), limit))
	// The server gives up after 10 s without a chunk; an empty one would end the upload.
	time.Sleep(11 * time.Second)
	until("the upload is given up", func() bool {
		_, err := s.nc.Request(resp.DeliverSubject, []byte{}, time.Second)
		return errors.Is(err, nats.ErrNoResponders)
	})
	names := must(s.mgr.StreamNames(nil))
	check(len(names) == 0, "left behind: %v", names)
	fmt.Println("ok   an abandoned upload")
}

func main() {
	ours := flag.String("ours", "", "a server of ours")
	other := flag.String("other", "", "another one")
	theirs := flag.String("theirs", "", "a nats-server")
	flag.Parse()
	a, b, n := connect("ours", *ours), connect("ours", *other), connect("nats-server", *theirs)
	fill(a)
	advisories(a, func() {
		transfer(a, b)
		dir := must(os.MkdirTemp("", "nuthatch-jsm-backup"))
		defer os.RemoveAll(dir)
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		must(must(a.muxed.LoadStream(stream)).SnapshotToDirectory(ctx, dir, jsm.SnapshotConsumers()))
		remove(a)
		_, _, err := a.mgr.RestoreSnapshotFromDirectory(ctx, stream, dir)
		ok(err)
	})
	transfer(a, n, jsm.SnapshotChunkSize(1024))
	remove(a)
	fill(n)
	transfer(n, a)
	transfer(n, b)
	abandoned(b)
}
