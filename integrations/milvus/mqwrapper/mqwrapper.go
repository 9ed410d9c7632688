// Package mqwrapper is Milvus's older message stream on Nuthatch, as natsmq was: a topic is a stream, a
// producer publishes to it, a consumer reads it from any position. As with RocksMQ, Milvus keeps the positions
// itself (Seek); a consumer's name is for its log lines, and Ack does nothing.
package mqwrapper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/milvus-io/milvus/pkg/v2/mq/common"
	"github.com/milvus-io/milvus/pkg/v2/mq/msgstream/mqwrapper"

	"nuthatch/embed/logs"
	"nuthatch/milvus"
)

var (
	_ mqwrapper.Client   = (*Client)(nil)
	_ mqwrapper.Producer = (*producer)(nil)
	_ common.MessageID   = ID(0)
)

const callTimeout = 10 * time.Second

// Retention of topics that are made here; the zero value keeps everything.
type Retention struct {
	MaxAge   time.Duration
	MaxBytes int64
	MaxMsgs  int64
}

// Client of the broker.
type Client struct {
	conn      *milvus.Connection
	js        jetstream.JetStream
	tags      []string
	replicas  int
	retention Retention
}

// NewClient connects to the log that the configuration names.
func NewClient(config milvus.Config, retention Retention) (*Client, error) {
	conn, err := milvus.Open(config, "milvus mq")
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn.Conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Client{conn: conn, js: js, tags: config.Tags, replicas: config.Replicas, retention: retention}, nil
}

// topic makes the stream of a topic, if it is not there, and names its subject.
func (c *Client) topic(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", errors.New("a topic has a name")
	}
	stream := logs.StreamName(name)
	subject := "nuthatch.log." + stream
	unbounded := func(n int64) int64 {
		if n == 0 {
			return -1
		}
		return n
	}
	config := jetstream.StreamConfig{
		Name: stream, Subjects: []string{subject}, MaxAge: c.retention.MaxAge,
		MaxBytes: unbounded(c.retention.MaxBytes), MaxMsgs: unbounded(c.retention.MaxMsgs),
		Replicas: max(c.replicas, 1),
	}
	if len(c.tags) > 0 {
		config.Placement = &jetstream.Placement{Tags: c.tags}
	}
	_, err := c.js.CreateStream(ctx, config)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		err = nil
	}
	return subject, err
}

// CreateProducer gives a producer to a topic.
func (c *Client) CreateProducer(ctx context.Context, options common.ProducerOptions) (mqwrapper.Producer, error) {
	subject, err := c.topic(ctx, options.Topic)
	if err != nil {
		return nil, err
	}
	return &producer{js: c.js, subject: subject}, nil
}

// Subscribe gives a consumer of a topic.
func (c *Client) Subscribe(ctx context.Context, options mqwrapper.ConsumerOptions) (mqwrapper.Consumer, error) {
	if options.SubscriptionName == "" {
		return nil, errors.New("a subscription has a name")
	}
	if _, err := c.topic(ctx, options.Topic); err != nil {
		return nil, err
	}
	log, err := logs.Open(ctx, c.conn.Conn, options.Topic, 0, logs.ReadOnly, logs.Options{})
	if err != nil {
		return nil, err
	}
	consumer := &consumer{conn: c.conn.Conn, log: log, name: options.SubscriptionName, readAhead: int(options.BufSize)}
	if options.SubscriptionInitialPosition == common.SubscriptionPositionLatest {
		bounds, err := log.Bounds(ctx)
		if err != nil {
			return nil, err
		}
		consumer.start = logs.Behind(bounds.Last)
	}
	return consumer, nil
}

// EarliestMessageID is before all.
func (c *Client) EarliestMessageID() common.MessageID { return ID(0) }

// StringToMsgID reads a printed id.
func (c *Client) StringToMsgID(text string) (common.MessageID, error) {
	position, err := logs.ParsePosition(text)
	return ID(position), err
}

// BytesToMsgID reads a serialized id.
func (c *Client) BytesToMsgID(data []byte) (common.MessageID, error) { return deserialize(data) }

// Close ends the client, and with it producers and consumers.
func (c *Client) Close() { c.conn.Close() }

// ID of a message: its position.
type ID logs.Position

func deserialize(data []byte) (ID, error) {
	if len(data) != 8 {
		return 0, fmt.Errorf("an id of %d bytes, not 8", len(data))
	}
	return ID(binary.LittleEndian.Uint64(data)), nil
}

// Serialize writes 8 bytes.
func (id ID) Serialize() []byte { return binary.LittleEndian.AppendUint64(nil, uint64(id)) }

// AtEarliestPosition is true of an id at or before the first message.
func (id ID) AtEarliestPosition() bool { return id <= 1 }

// LessOrEqualThan compares with a serialized id.
func (id ID) LessOrEqualThan(data []byte) (bool, error) {
	other, err := deserialize(data)
	return err == nil && id <= other, err
}

// Equal compares with a serialized id.
func (id ID) Equal(data []byte) (bool, error) {
	other, err := deserialize(data)
	return err == nil && id == other, err
}

type producer struct {
	js      jetstream.JetStream
	subject string
}

// Send returns when the message is durable.
func (p *producer) Send(ctx context.Context, message *common.ProducerMessage) (common.MessageID, error) {
	body, err := milvus.EncodeMessage(message.Payload, message.Properties)
	if err != nil {
		return nil, err
	}
	ack, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: p.subject, Data: body}, jetstream.WithRetryAttempts(0))
	if err != nil {
		return nil, err
	}
	return ID(ack.Sequence), nil
}

// Close ends nothing but the producer.
func (p *producer) Close() {}
