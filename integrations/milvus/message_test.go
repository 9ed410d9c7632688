package milvus

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/milvus-io/milvus/pkg/v2/proto/messagespb"
)

func TestEncodedMessageIsTheMarshalledOne(t *testing.T) {
	for _, message := range []*messagespb.Message{
		{},
		{Payload: []byte{}},
		{Payload: []byte("payload")},
		{Properties: map[string]string{"": ""}},
		{Payload: bytes.Repeat([]byte{0xff}, 1<<20), Properties: map[string]string{"key": "value", "empty": "", "ü": strings.Repeat("x", 300)}},
	} {
		encoded, err := EncodeMessage(message.Payload, message.Properties)
		if err != nil {
			t.Fatal(err)
		}
		marshalled, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		if len(encoded) != cap(encoded) || len(encoded) != len(marshalled) {
			t.Errorf("%d bytes in %d, marshalled %d", len(encoded), cap(encoded), len(marshalled))
		}
		var decoded messagespb.Message
		if err := proto.Unmarshal(encoded, &decoded); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(decoded.Payload, message.Payload) || len(decoded.Properties) != len(message.Properties) {
			t.Errorf("decoded: %d bytes, properties %q", len(decoded.Payload), decoded.Properties)
		}
		for key, value := range message.Properties {
			if decoded.Properties[key] != value {
				t.Errorf("property %q: %q", key, decoded.Properties[key])
			}
		}
	}
}

func TestInvalidUTF8IsRefused(t *testing.T) {
	for _, properties := range []map[string]string{{"\xff": "v"}, {"k": "\xff"}} {
		if encoded, err := EncodeMessage(nil, properties); err == nil {
			t.Errorf("%q: encoded as %q", properties, encoded)
		}
	}
}

func BenchmarkEncodeMessage(b *testing.B) {
	payload := bytes.Repeat([]byte{1}, 1024)
	properties := map[string]string{"_t": "2", "_v": "1", "_h": "CAE=", "_vc": "v1", "_tt": "", "_lc": "1"}
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			_, _ = EncodeMessage(payload, properties)
		}
	})
	b.Run("marshal", func(b *testing.B) {
		for b.Loop() {
			_, _ = proto.Marshal(&messagespb.Message{Payload: payload, Properties: properties})
		}
	})
}
