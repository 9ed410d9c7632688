package mqwrapper

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/milvus-io/milvus/pkg/v2/log"
	"github.com/milvus-io/milvus/pkg/v2/mq/common"
	"github.com/milvus-io/milvus/pkg/v2/mq/msgstream/mqwrapper"
	"github.com/milvus-io/milvus/pkg/v2/proto/messagespb"
	"github.com/milvus-io/milvus/pkg/v2/util/merr"

	"nuthatch/embed/logs"
)

var _ mqwrapper.Consumer = (*consumer)(nil)

// consumer of a topic. It begins to read with the first call of Chan.
type consumer struct {
	conn      *nats.Conn
	log       *logs.Log
	name      string
	readAhead int

	mu       sync.Mutex
	start    logs.Start
	messages chan common.Message
	cancel   context.CancelFunc
	ended    chan struct{}
	closed   bool
}

// received is a message of a topic.
type received struct {
	topic string
	id    ID
	body  messagespb.Message
}

func (m *received) Topic() string { return m.topic }

func (m *received) Properties() map[string]string { return m.body.Properties }

func (m *received) Payload() []byte { return m.body.Payload }

func (m *received) ID() common.MessageID { return m.id }

func (c *consumer) Subscription() string { return c.name }

// Chan begins to read; the channel is closed with the consumer, or when the topic is gone.
func (c *consumer) Chan() <-chan common.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.messages == nil {
		c.messages = make(chan common.Message)
		c.ended = make(chan struct{})
		if c.closed {
			close(c.messages)
			close(c.ended)
			return c.messages
		}
		var ctx context.Context
		ctx, c.cancel = context.WithCancel(context.Background())
		go c.run(ctx, c.start)
	}
	return c.messages
}

func (c *consumer) run(ctx context.Context, start logs.Start) {
	defer close(c.ended)
	defer close(c.messages)
	if err := c.forward(ctx, start); err != nil && ctx.Err() == nil {
		log.Warn("a consumer has ended", zap.String("topic", c.log.Channel()), zap.String("subscription", c.name), zap.Error(err))
	}
}

func (c *consumer) forward(ctx context.Context, start logs.Start) error {
	reader, err := c.log.Read(ctx, start, logs.ReadOptions{ReadAhead: c.readAhead})
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		record, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		message := &received{topic: c.log.Channel(), id: ID(record.Position)}
		if err := proto.Unmarshal(record.Data, &message.body); err != nil {
			return fmt.Errorf("record %v is no message of Milvus: %w", record.Position, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case c.messages <- message:
		}
	}
}

// Seek says where to begin, before Chan is called.
func (c *consumer) Seek(id common.MessageID, inclusive bool) error {
	position, ok := id.(ID)
	if !ok {
		return fmt.Errorf("%T is no id of this log", id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.messages != nil {
		return errors.New("the consumer has begun to read: it cannot seek any more")
	}
	if c.start = logs.Behind(logs.Position(position)); inclusive {
		c.start = logs.At(logs.Position(position))
	}
	return nil
}

// Ack does nothing: what was read is Milvus's to know.
func (c *consumer) Ack(common.Message) {}

// Close ends the consumer.
func (c *consumer) Close() {
	c.mu.Lock()
	c.closed = true
	cancel, ended := c.cancel, c.ended
	c.mu.Unlock()
	if cancel != nil {
		cancel()
		<-ended
	}
}

// GetLatestMsgID is the last message that was sent to the topic.
func (c *consumer) GetLatestMsgID() (common.MessageID, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	bounds, err := c.log.Bounds(ctx)
	return ID(bounds.Last), err
}

// CheckTopicValid says whether the topic is there.
func (c *consumer) CheckTopicValid(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := logs.Open(ctx, c.conn, topic, 0, logs.ReadOnly, logs.Options{})
	if errors.Is(err, logs.ErrNoChannel) {
		return merr.WrapErrMqTopicNotFound(topic, err.Error())
	}
	return err
}
