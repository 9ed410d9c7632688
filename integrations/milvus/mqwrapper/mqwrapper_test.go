package mqwrapper

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/milvus-io/milvus/pkg/v2/mq/common"
	"github.com/milvus-io/milvus/pkg/v2/mq/msgstream/mqwrapper"
	"github.com/milvus-io/milvus/pkg/v2/util/paramtable"

	"nuthatch/milvus"
	_ "nuthatch/milvus/embedded"
)

func TestMain(m *testing.M) {
	// Defaults only: no file, no environment, no etcd.
	paramtable.InitWithBaseTable(paramtable.NewBaseTableFromYamlOnly("none"))
	os.Exit(m.Run())
}

func client(t *testing.T) *Client {
	t.Helper()
	config := milvus.Config{Engine: milvus.Embedded, StoreDir: t.TempDir(), InitializeTimeout: time.Minute}
	c, err := NewClient(config, Retention{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func send(t *testing.T, p mqwrapper.Producer, n int) common.MessageID {
	t.Helper()
	message := &common.ProducerMessage{
		Payload:    []byte(fmt.Sprint("payload ", n)),
		Properties: map[string]string{"n": fmt.Sprint(n), "odd": "line\r\nbreak \x00"},
	}
	id, err := p.Send(patient(t), message)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func subscribe(t *testing.T, c *Client, from common.SubscriptionInitialPosition) mqwrapper.Consumer {
	t.Helper()
	options := mqwrapper.ConsumerOptions{
		Topic: "topic.1", SubscriptionName: "sub", SubscriptionInitialPosition: from, BufSize: 64,
	}
	consumer, err := c.Subscribe(patient(t), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(consumer.Close)
	return consumer
}

func expect(t *testing.T, consumer mqwrapper.Consumer, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		select {
		case m, ok := <-consumer.Chan():
			if !ok {
				t.Fatalf("message %d: the channel is closed", n)
			}
			same := m.Topic() == "topic.1" && string(m.Payload()) == fmt.Sprint("payload ", n) &&
				m.Properties()["n"] == fmt.Sprint(n) && m.Properties()["odd"] == "line\r\nbreak \x00"
			if !same {
				t.Fatalf("message %d is %q %v", n, m.Payload(), m.Properties())
			}
			consumer.Ack(m)
		case <-time.After(time.Minute):
			t.Fatalf("message %d does not come", n)
		}
	}
}

func TestTopicsAreReadFromAnyPosition(t *testing.T) {
	c := client(t)
	p, err := c.CreateProducer(patient(t), common.ProducerOptions{Topic: "topic.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var ids []common.MessageID
	for n := range 10 {
		ids = append(ids, send(t, p, n))
	}
	expect(t, subscribe(t, c, common.SubscriptionPositionEarliest), 0, 9)
	latest := subscribe(t, c, common.SubscriptionPositionLatest)
	for inclusive, from := range map[bool]int{true: 4, false: 5} {
		consumer := subscribe(t, c, common.SubscriptionPositionUnknown)
		if err := consumer.Seek(ids[4], inclusive); err != nil {
			t.Fatal(err)
		}
		expect(t, consumer, from, 9)
		if err := consumer.Seek(ids[4], inclusive); err == nil {
			t.Fatal("a consumer that reads cannot seek")
		}
	}
	ids = append(ids, send(t, p, 10))
	expect(t, latest, 10, 10)
	last, err := latest.GetLatestMsgID()
	if err != nil || !bytes.Equal(last.Serialize(), ids[10].Serialize()) {
		t.Fatal(last, err)
	}
	if err := latest.CheckTopicValid("topic.1"); err != nil {
		t.Fatal(err)
	}
	if err := latest.CheckTopicValid("nowhere"); err == nil {
		t.Fatal("a topic that is not there is valid")
	}
	latest.Close()
	if _, open := <-latest.Chan(); open {
		t.Fatal("a closed consumer still gives messages")
	}
}

func TestIDsAreOrderedAndReadBack(t *testing.T) {
	c := client(t)
	id, err := c.BytesToMsgID(ID(258).Serialize())
	if err != nil || id != ID(258) {
		t.Fatal(id, err)
	}
	printed, err := c.StringToMsgID("258")
	if err != nil || printed != ID(258) {
		t.Fatal(printed, err)
	}
	less, _ := ID(257).LessOrEqualThan(id.Serialize())
	more, _ := ID(259).LessOrEqualThan(id.Serialize())
	same, _ := ID(258).Equal(id.Serialize())
	if !less || more || !same || !c.EarliestMessageID().AtEarliestPosition() || id.AtEarliestPosition() {
		t.Fatal(less, more, same)
	}
	if _, err := c.BytesToMsgID([]byte("short")); err == nil {
		t.Fatal("five bytes are no id")
	}
}
