package walimpls

import (
	"fmt"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/message"

	"nuthatch/embed/logs"
)

// WALName of Nuthatch. Milvus's list has none for us; its message ids hold a number, and that is an open
// enumeration, so this one is registered beside the others.
const WALName message.WALName = 4222

var _ message.MessageID = messageID(0)

// messageID is a position in the log.
type messageID logs.Position

// NewMessageID makes the id of a position.
func NewMessageID(position logs.Position) message.MessageID { return messageID(position) }

// UnmarshalMessageID reads what Marshal wrote.
func UnmarshalMessageID(data string) (message.MessageID, error) {
	id, err := unmarshal(data)
	if err != nil {
		return nil, err
	}
	return id, nil
}

func unmarshal(data string) (messageID, error) {
	position, err := message.DecodeUint64(data)
	if err != nil {
		return 0, fmt.Errorf("%w: %q: %w", message.ErrInvalidMessageID, data, err)
	}
	return messageID(position), nil
}

func (id messageID) WALName() message.WALName { return WALName }

func (id messageID) LT(other message.MessageID) bool { return id < other.(messageID) }

func (id messageID) LTE(other message.MessageID) bool { return id <= other.(messageID) }

func (id messageID) EQ(other message.MessageID) bool { return id == other.(messageID) }

func (id messageID) Marshal() string { return message.EncodeUint64(uint64(id)) }

func (id messageID) IntoProto() *commonpb.MessageID {
	return &commonpb.MessageID{Id: id.Marshal(), WALName: commonpb.WALName(WALName)}
}

func (id messageID) String() string { return logs.Position(id).String() }
