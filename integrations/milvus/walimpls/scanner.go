package walimpls

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/milvus-io/milvus/pkg/v2/proto/messagespb"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/message"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls/helper"

	"nuthatch/embed/logs"
)

var _ walimpls.ScannerImpls = (*scanner)(nil)

type scanner struct {
	*helper.ScannerHelper
	reader   *logs.Reader
	messages chan message.ImmutableMessage
}

func newScanner(name string, reader *logs.Reader) *scanner {
	s := &scanner{
		ScannerHelper: helper.NewScannerHelper(name),
		reader:        reader,
		messages:      make(chan message.ImmutableMessage),
	}
	go s.run()
	return s
}

func (s *scanner) Chan() <-chan message.ImmutableMessage { return s.messages }

// run hands out messages until the scanner is closed. A broker that is away is waited for.
func (s *scanner) run() {
	err := s.forward()
	if s.Context().Err() != nil {
		err = nil
	}
	s.reader.Close()
	s.Finish(err)
	close(s.messages)
}

func (s *scanner) forward() error {
	for {
		record, err := s.reader.Next(s.Context())
		if err != nil {
			return err
		}
		var body messagespb.Message
		if err := proto.Unmarshal(record.Data, &body); err != nil {
			return fmt.Errorf("record %v is no message of Milvus: %w", record.Position, err)
		}
		msg := message.NewImmutableMesasge(messageID(record.Position), body.Payload, body.Properties)
		select {
		case <-s.Context().Done():
			return nil
		case s.messages <- msg:
		}
	}
}
