package walimpls

import (
	"context"
	"errors"
	"fmt"

	"github.com/milvus-io/milvus/pkg/v2/proto/streamingpb"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/message"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls/helper"

	"nuthatch/embed/logs"
	"nuthatch/milvus"
)

var _ walimpls.WALImpls = (*wal)(nil)

// wal is a pchannel, opened.
type wal struct {
	*helper.WALHelper
	// Without access for writing there is none.
	writer *logs.Log
	reader *logs.Log
}

// fenced makes an error that ends this writer Milvus's own.
func fenced(err error) error {
	if errors.Is(err, logs.ErrFenced) || errors.Is(err, logs.ErrNotOpen) {
		return fmt.Errorf("%w: %w", walimpls.ErrFenced, err)
	}
	return err
}

func (w *wal) WALName() message.WALName { return WALName }

func (w *wal) Append(ctx context.Context, msg message.MutableMessage) (message.MessageID, error) {
	if w.writer == nil {
		panic("append to a wal that is not open for writing")
	}
	whole := msg.IntoMessageProto()
	body, err := milvus.EncodeMessage(whole.GetPayload(), whole.GetProperties())
	if err != nil {
		return nil, err
	}
	position, err := w.writer.Append(ctx, logs.Record{Data: body})
	if err != nil {
		return nil, fenced(err)
	}
	return messageID(position), nil
}

func (w *wal) Read(ctx context.Context, option walimpls.ReadOption) (walimpls.ScannerImpls, error) {
	var start logs.Start
	switch policy := option.DeliverPolicy.GetPolicy().(type) {
	case *streamingpb.DeliverPolicy_All:
		start = logs.Beginning()
	case *streamingpb.DeliverPolicy_Latest:
		start = logs.End()
	case *streamingpb.DeliverPolicy_StartFrom:
		id, err := unmarshal(policy.StartFrom.GetId())
		if err != nil {
			return nil, err
		}
		start = logs.At(logs.Position(id))
	case *streamingpb.DeliverPolicy_StartAfter:
		id, err := unmarshal(policy.StartAfter.GetId())
		if err != nil {
			return nil, err
		}
		start = logs.Behind(logs.Position(id))
	default:
		return nil, fmt.Errorf("deliver policy %T is not known", policy)
	}
	reader, err := w.reader.Read(ctx, start, logs.ReadOptions{ReadAhead: option.ReadAheadBufferSize})
	if err != nil {
		return nil, err
	}
	return newScanner(option.Name, reader), nil
}

func (w *wal) Truncate(ctx context.Context, id message.MessageID) error {
	if w.writer == nil {
		panic("truncate of a wal that is not open for writing")
	}
	return fenced(w.writer.Truncate(ctx, logs.Position(id.(messageID))))
}

func (w *wal) Close() {
	if w.writer != nil {
		w.writer.Close()
	}
}
