package migration

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// The topics of a database: its physical channels.
var topics = []string{"by-dev-rootcoord-dml_0", "by-dev-rootcoord-dml_1", "by-dev-replicate-msg"}

// lockedBuffer is written by a process and read by a test.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func jetStream(t *testing.T, conn *nats.Conn) nats.JetStreamContext {
	t.Helper()
	js, err := conn.JetStream(nats.MaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// createTopics as natsmq did: a stream of its name and subject, three days.
func createTopics(t *testing.T, js nats.JetStreamContext) {
	t.Helper()
	for _, topic := range topics {
		config := &nats.StreamConfig{Name: topic, Subjects: []string{topic}, MaxAge: 4320 * time.Minute}
		if _, err := js.AddStream(config); err != nil {
			t.Fatal(err)
		}
	}
}

// send as natsmq did: the payload as it is, properties as headers. It gives the sequence.
func send(t *testing.T, js nats.JetStreamContext, topic string, n int) uint64 {
	t.Helper()
	msg := nats.NewMsg(topic)
	msg.Header.Set("vchannel", fmt.Sprint("v", n%4))
	// Of different sizes, some of them large.
	msg.Data = bytes.Repeat([]byte(fmt.Sprint(topic, " ", n, "; ")), 1+n%50)
	if n%200 == 0 {
		msg.Data = bytes.Repeat([]byte{byte(n)}, 2<<20)
	}
	ack, err := js.PublishMsg(msg)
	if err != nil {
		t.Error(err)
		return 0
	}
	return ack.Sequence
}

// stored is a message as a server has it.
type stored struct {
	sequence uint64
	time     time.Time
	header   string
	data     string
}

// contents of a topic, read by a consumer of its own.
func contents(t *testing.T, js nats.JetStreamContext, topic string) []stored {
	t.Helper()
	info, err := js.StreamInfo(topic)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := js.SubscribeSync(topic, nats.OrderedConsumer())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	var all []stored
	for uint64(len(all)) < info.State.Msgs {
		msg, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatalf("%s: %d of %d: %v", topic, len(all), info.State.Msgs, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, stored{meta.Sequence.Stream, meta.Timestamp, msg.Header.Get("vchannel"), string(msg.Data)})
	}
	return all
}

// compare two servers, topic for topic and byte for byte.
func compare(t *testing.T, old, fresh map[string][]stored) {
	t.Helper()
	for _, topic := range topics {
		if len(old[topic]) == 0 {
			t.Errorf("%s: there was nothing", topic)
		}
		if !slices.EqualFunc(old[topic], fresh[topic], func(a, b stored) bool {
			return a.sequence == b.sequence && a.time.Equal(b.time) && a.header == b.header && a.data == b.data
		}) {
			t.Errorf("%s: %d messages there, %d here, or others", topic, len(old[topic]), len(fresh[topic]))
		}
	}
}

func allContents(t *testing.T, js nats.JetStreamContext) map[string][]stored {
	all := map[string][]stored{}
	for _, topic := range topics {
		all[topic] = contents(t, js, topic)
	}
	return all
}

// Milvus's own steps, with what comes in their place: while writers go on, an import follows, is killed, and goes on; the writers
// stop; what is read of the old log is flushed (here: a subscription that acknowledges); the import is finished, the users switch,
// and both are compared. The writers go on behind the last sequence, the subscription behind what it had acknowledged.
func TestFromARunningNatsmq(t *testing.T) {
	old, fresh := natsmq(t, filepath.Join(t.TempDir(), "natsmq")), nuthatch(t)
	js := jetStream(t, old.connect())
	createTopics(t, js)
	var sent [3]atomic.Int64
	for at, topic := range topics {
		for n := range 300 {
			send(t, js, topic, n)
		}
		sent[at].Store(300)
	}
	// Some left in front, and one inside.
	if err := js.PurgeStream(topics[0], &nats.StreamPurgeRequest{Sequence: 50}); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteMsg(topics[0], 100); err != nil {
		t.Fatal(err)
	}

	var writers sync.WaitGroup
	stop := make(chan struct{})
	for at, topic := range topics {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
					send(t, js, topic, int(sent[at].Add(1)-1))
				}
			}
		}()
	}
	// Live import, follow; killed in the midst, and again.
	following := fresh.follow("--from", old.url, "--follow")
	following.has(t, "compared")
	before := sent[0].Load()
	for sent[0].Load() < before+100 {
		time.Sleep(10 * time.Millisecond)
	}
	_ = following.end(syscall.SIGKILL)
	if told, err := fresh.importing("--from", old.url, "--finish"); err == nil || !strings.Contains(told, "publish") {
		t.Errorf("it is finished while somebody writes: %v %s", err, told)
	}
	following = fresh.follow("--from", old.url, "--follow")
	following.has(t, "compared")

	// 1. Stop the writers. 2. Flush: the subscription has all but the last ten of one topic.
	close(stop)
	writers.Wait()
	acked := flush(t, js, topics[1], int(sent[1].Load())-10)
	_ = following.end(syscall.SIGINT)
	// 3. and 4. Finish, and switch.
	told, err := fresh.importing("--from", old.url, "--finish")
	if err != nil {
		t.Fatal(told, err)
	}
	for _, topic := range topics {
		if !strings.Contains(told, fmt.Sprintf("Stream %s is in service", topic)) {
			t.Errorf("%s is not in service: %s", topic, told)
		}
	}
	there := allContents(t, js)
	old.stop()
	// 5. Verify, without the old one.
	js = jetStream(t, fresh.connect())
	compare(t, there, allContents(t, js))
	for at, topic := range topics {
		if got, last := send(t, js, topic, 1), uint64(sent[at].Load()); got != last+1 {
			t.Errorf("%s goes on at %d, not at %d", topic, got, last+1)
		}
	}
	sub, err := js.PullSubscribe(topics[1], "datanode", nats.BindStream(topics[1]))
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := sub.Fetch(1, nats.MaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	if meta, err := msgs[0].Metadata(); err != nil || meta.Sequence.Stream != acked+1 {
		t.Errorf("the subscription goes on at %v, not at %d: %v", meta, acked+1, err)
	}
}

// flush reads and acknowledges so many of a topic, as its subscription, and gives the last sequence.
func flush(t *testing.T, js nats.JetStreamContext, topic string, count int) (last uint64) {
	t.Helper()
	sub, err := js.PullSubscribe(topic, "datanode", nats.BindStream(topic))
	if err != nil {
		t.Fatal(err)
	}
	for count > 0 {
		msgs, err := sub.Fetch(min(count, 100), nats.MaxWait(patience))
		if err != nil {
			t.Fatal(err)
		}
		for _, msg := range msgs {
			if err := msg.AckSync(); err != nil {
				t.Fatal(err)
			}
			meta, err := msg.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			last = meta.Sequence.Stream
		}
		count -= len(msgs)
	}
	return last
}

// A natsmq that was stopped is brought from its directory.
func TestFromTheDirectoryOfANatsmq(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "natsmq")
	old := natsmq(t, dir)
	js := jetStream(t, old.connect())
	createTopics(t, js)
	for _, topic := range topics {
		for n := range 150 {
			send(t, js, topic, n)
		}
	}
	there := allContents(t, js)
	old.stop()
	fresh := nuthatch(t)
	if told, err := fresh.importing("--from-dir", dir); err != nil {
		t.Fatal(told, err)
	}
	here := allContents(t, jetStream(t, fresh.connect()))
	compare(t, there, here)
	names := slices.Sorted(maps.Keys(here))
	if len(names) != len(topics) {
		t.Errorf("topics %v", names)
	}
}
