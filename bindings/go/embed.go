// Package embed runs a Nuthatch broker in this process: a durable log that speaks NATS and JetStream.
//
// It needs the C library, which packaging/c-library.sh of the repository builds, and finds it by pkg-config.
// Several brokers may be open at the same time. A crash of the process loses nothing that was acknowledged.
package embed

/*
#cgo pkg-config: nuthatch
#include <stdlib.h>
#include <nuthatch.h>

#if NUTHATCH_ABI_VERSION != 1
#error "this package is for version 1 of the C interface"
#endif
*/
import "C"

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"unsafe"
)

// Errors of a broker, for errors.Is; their text says more.
var (
	ErrConfig   = errors.New("the configuration is of no use")
	ErrOpen     = errors.New("the broker did not start")
	ErrNotReady = errors.New("the broker did not start in time")
	ErrClosed   = errors.New("the broker is closed")
	ErrDead     = errors.New("the broker has ended by itself")
	ErrNotClean = errors.New("the broker has ended, but a log did not close cleanly")
)

var kinds = map[C.int]error{
	C.NUTHATCH_CONFIG:    ErrConfig,
	C.NUTHATCH_UTF8:      ErrConfig,
	C.NUTHATCH_OPEN:      ErrOpen,
	C.NUTHATCH_NOT_READY: ErrNotReady,
	C.NUTHATCH_CLOSED:    ErrClosed,
	C.NUTHATCH_DEAD:      ErrDead,
	C.NUTHATCH_NOT_CLEAN: ErrNotClean,
}

// Error is what the library refused.
type Error struct {
	// Code is one of nuthatch.h.
	Code int
	text string
	kind error
}

func (e *Error) Error() string { return "nuthatch: " + e.text }

// Unwrap gives the kind of the error, such as [ErrOpen].
func (e *Error) Unwrap() error { return e.kind }

// Broker is a broker in this process. Its methods may be called by several goroutines.
// It is an InProcessConnProvider of nats.go: nats.Connect("", nats.InProcessServer(broker)).
type Broker struct {
	handle C.nuthatch_broker
	url    string
}

// Start opens a broker and waits until it serves.
func Start(options Options) (*Broker, error) {
	text := options.Text()
	if at := strings.IndexByte(text, 0); at >= 0 {
		return nil, fmt.Errorf("%w: a zero byte at %d", ErrConfig, at)
	}
	config := C.CString(text)
	defer C.free(unsafe.Pointer(config))
	var flags C.uint32_t
	if options.Port == 0 {
		flags |= C.NUTHATCH_OPEN_NO_LISTENER
	}
	if options.Log.Stderr {
		flags |= C.NUTHATCH_OPEN_LOG_STDERR
	}
	broker := &Broker{}
	if err := call(func() C.int { return C.nuthatch_open(config, flags, &broker.handle) }); err != nil {
		return nil, err
	}
	if options.Port != 0 {
		var buffer [512]C.char
		size := C.size_t(len(buffer))
		err := call(func() C.int { return C.nuthatch_client_url(broker.handle, &buffer[0], size) })
		if err != nil {
			return nil, errors.Join(err, broker.Close())
		}
		broker.url = C.GoString(&buffer[0])
	}
	return broker, nil
}

// URL is where clients of other processes connect; "" without a port.
func (b *Broker) URL() string { return b.url }

// InProcessConn connects within the process.
func (b *Broker) InProcessConn() (net.Conn, error) {
	var fd C.int
	if err := call(func() C.int { return C.nuthatch_connect(b.handle, &fd) }); err != nil {
		return nil, err
	}
	// The connection has a descriptor of its own.
	file := os.NewFile(uintptr(fd), "nuthatch")
	defer file.Close()
	return net.FileConn(file)
}

// Err tells whether the broker serves: nil, [ErrClosed], or [ErrDead] with the reason.
func (b *Broker) Err() error {
	return call(func() C.int { return C.nuthatch_check(b.handle) })
}

// Close stops the broker and waits until nothing of it runs any more.
func (b *Broker) Close() error {
	return call(func() C.int { return C.nuthatch_close(b.handle) })
}

// call makes an error of a code; the words belong to the thread of the call.
func call(function func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	code := function()
	if code == C.NUTHATCH_OK {
		return nil
	}
	buffer := make([]C.char, C.nuthatch_last_error(nil, 0)+1)
	C.nuthatch_last_error(&buffer[0], C.size_t(len(buffer)))
	return &Error{Code: int(code), text: C.GoString(&buffer[0]), kind: kinds[code]}
}
