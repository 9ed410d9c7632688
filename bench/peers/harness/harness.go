// Package harness is the Go side of the workbench's protocol for systems whose own client is
// written in Go: it listens on a Unix socket, and every sender and receiver is one connection.
//
// A request is length u32 | operation u8 | body, an answer length u32 | status u8 | body, all
// big-endian, the length counting what follows it. A body with messages is
// count u32 | (length u32 | bytes)*. Status 0 is success; otherwise the body is text.
// The other side is crates/nuthatch-bench/src/queue/program.rs.
package harness

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Largest request taken, so that a bad length cannot reserve unbounded memory.
const maxRequestBytes = 256 << 20

// Operations of the protocol.
const (
	opHello        = 1
	opPrepare      = 2
	opOpenSender   = 3
	opOpenReceiver = 4
	opSend         = 5
	opReceive      = 6
	opAck          = 7
)

// Guarantee says what a completed send promises.
type Guarantee struct {
	Replicated string `json:"replicated"`
	Fsync      string `json:"fsync"`
}

// System is what a program measures.
type System interface {
	Guarantee() Guarantee
	// Prepare makes a topic exist and be empty.
	Prepare(topic string) error
	Sender(topic string, index uint32) (Sender, error)
	Receiver(topic string, index uint32) (Receiver, error)
	Close()
}

// Sender sends.
type Sender interface {
	// Send returns when all messages are safe as Guarantee says.
	Send(batch [][]byte) error
}

// Receiver receives.
type Receiver interface {
	// Receive returns up to max messages and waits at most for wait for the first.
	Receive(max int, wait time.Duration) ([][]byte, error)
	// Ack acknowledges everything received.
	Ack() error
}

// Options of every program; a program may add its own.
var (
	socketPath  = flag.String("socket", "", "path of the Unix socket to listen on")
	dataDir     = flag.String("dir", "", "directory for the data")
	showVersion = flag.Bool("version", false, "print the version")
)

// Main reads the command line, opens the system and serves until it is told to end. The version is
// asked for after the command line was read.
func Main(version func() string, open func(dir string) (System, error)) {
	flag.Parse()
	if *showVersion {
		fmt.Println(version())
		return
	}
	if *socketPath == "" || *dataDir == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := serve(*socketPath, *dataDir, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(socket, dir string, open func(dir string) (System, error)) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	system, err := open(dir)
	if err != nil {
		return err
	}
	defer system.Close()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		listener.Close()
	}()
	for {
		socket, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go (&link{system: system, socket: socket}).run()
	}
}

// link is one connection.
type link struct {
	system   System
	socket   net.Conn
	sender   Sender
	receiver Receiver
}

func (l *link) run() {
	defer l.socket.Close()
	reader := bufio.NewReaderSize(l.socket, 64<<10)
	writer := bufio.NewWriterSize(l.socket, 64<<10)
	for {
		request, err := readFrame(reader)
		if err != nil {
			return
		}
		body, err := l.handle(request[0], request[1:])
		status := byte(0)
		if err != nil {
			status, body = 1, []byte(err.Error())
		}
		var head [5]byte
		binary.BigEndian.PutUint32(head[:4], uint32(len(body)+1))
		head[4] = status
		writer.Write(head[:])
		writer.Write(body)
		if writer.Flush() != nil {
			return
		}
	}
}

func readFrame(reader io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(reader, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length == 0 || length > maxRequestBytes {
		return nil, fmt.Errorf("a request of %d bytes", length)
	}
	frame := make([]byte, length)
	_, err := io.ReadFull(reader, frame)
	return frame, err
}

func (l *link) handle(operation byte, body []byte) ([]byte, error) {
	switch operation {
	case opHello:
		return json.Marshal(l.system.Guarantee())
	case opPrepare:
		return nil, l.system.Prepare(string(body))
	case opOpenSender, opOpenReceiver:
		return nil, l.open(operation, body)
	case opSend:
		batch, err := splitMessages(body)
		if err != nil {
			return nil, err
		}
		if l.sender == nil {
			return nil, errors.New("this connection does not send")
		}
		return nil, l.sender.Send(batch)
	case opReceive:
		return l.receive(body)
	case opAck:
		if l.receiver == nil {
			return nil, errors.New("this connection does not receive")
		}
		return nil, l.receiver.Ack()
	}
	return nil, fmt.Errorf("unknown operation %d", operation)
}

func (l *link) open(operation byte, body []byte) (err error) {
	if len(body) < 4 {
		return errors.New("an open request is too short")
	}
	index, topic := binary.BigEndian.Uint32(body), string(body[4:])
	if operation == opOpenSender {
		l.sender, err = l.system.Sender(topic, index)
	} else {
		l.receiver, err = l.system.Receiver(topic, index)
	}
	return err
}

func (l *link) receive(body []byte) ([]byte, error) {
	if len(body) != 8 || l.receiver == nil {
		return nil, errors.New("a bad receive request")
	}
	max := int(binary.BigEndian.Uint32(body))
	wait := time.Duration(binary.BigEndian.Uint32(body[4:])) * time.Millisecond
	messages, err := l.receiver.Receive(max, wait)
	if err != nil {
		return nil, err
	}
	size := 4
	for _, message := range messages {
		size += 4 + len(message)
	}
	answer := binary.BigEndian.AppendUint32(make([]byte, 0, size), uint32(len(messages)))
	for _, message := range messages {
		answer = binary.BigEndian.AppendUint32(answer, uint32(len(message)))
		answer = append(answer, message...)
	}
	return answer, nil
}

func splitMessages(body []byte) ([][]byte, error) {
	cut := errors.New("the messages are cut off")
	if len(body) < 4 {
		return nil, cut
	}
	count := binary.BigEndian.Uint32(body)
	body = body[4:]
	var messages [][]byte
	for range count {
		if len(body) < 4 {
			return nil, cut
		}
		length := binary.BigEndian.Uint32(body)
		body = body[4:]
		if uint64(len(body)) < uint64(length) {
			return nil, cut
		}
		messages = append(messages, body[:length:length])
		body = body[length:]
	}
	return messages, nil
}
