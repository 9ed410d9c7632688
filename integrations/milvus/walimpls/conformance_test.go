//go:build test

package walimpls

import (
	"testing"

	"github.com/milvus-io/milvus/pkg/v2/streaming/util/message"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls/registry"
)

func TestItIsRegistered(t *testing.T) {
	if builder := registry.MustGetBuilder(WALName); builder.Name() != WALName {
		t.Fatal(builder.Name())
	}
	id, err := message.UnmarshalMessageID(NewMessageID(7).IntoProto())
	if err != nil || !id.EQ(NewMessageID(7)) || id.String() != "7" {
		t.Fatal(id, err)
	}
	if _, err := UnmarshalMessageID("\x01\x02"); err == nil {
		t.Fatal("an id that is none is read")
	}
	if !id.LT(NewMessageID(8)) || id.LT(id) || !id.LTE(id) || NewMessageID(8).LTE(id) {
		t.Fatal("ids are not in order")
	}
}

// Milvus's own conformance test, as it is.
func TestConformance(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			walimpls.NewWALImplsTestFramework(t, 1000, NewBuilder(place(t))).Run()
		})
	}
}
