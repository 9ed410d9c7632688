// Package logs is a log's own interface, for systems that need an ordered, durable log and one writer at a
// time, and do not want to know about streams and consumers.
//
// A channel is one stream of a Nuthatch broker, over a connection of nats.go. A writer opens it with a term;
// whoever opens it with a higher one fences it: from then on its appends fail with [ErrFenced], also those that
// were on their way. An append that has returned is durable. Positions are ordered, printable and stable.
package logs

import (
	"errors"
	"strconv"
)

// Errors of this package, for errors.Is; their text says more.
var (
	// ErrFenced: the channel was opened with a higher term. It stays so for this writer.
	ErrFenced = errors.New("a later writer has the channel")
	// ErrNotOpen: the channel does not know this term; it was perhaps deleted and made anew.
	ErrNotOpen = errors.New("the channel was not opened with this term")
	// ErrNoChannel: there is no such channel.
	ErrNoChannel = errors.New("there is no such channel")
	// ErrReadOnly: the log was opened read-only.
	ErrReadOnly = errors.New("the log is open read-only")
	// ErrClosed: the log or reader was closed.
	ErrClosed = errors.New("the log is closed")
	// ErrUncertain: the connection was lost, or the broker stopped, before an append was answered. It may be
	// there or not; with an ID it can be repeated without being stored twice.
	ErrUncertain = errors.New("the outcome is not known")
)

// Position is the place of a record in its channel. The first record has a position of at least 1; positions
// rise, with gaps where records were truncated.
type Position uint64

// String is a decimal number.
func (p Position) String() string { return strconv.FormatUint(uint64(p), 10) }

// ParsePosition reads what [Position.String] wrote.
func ParsePosition(text string) (Position, error) {
	number, err := strconv.ParseUint(text, 10, 64)
	return Position(number), err
}

// Mode says what a log is opened for.
type Mode int

// Modes.
const (
	ReadOnly Mode = iota
	ReadWrite
)

// Record is what a log holds.
type Record struct {
	// ID lets an append be repeated: within two minutes (or Options.RepeatWindow) the same ID is stored once.
	ID string
	// Properties are kept with the record. Names are the sender's but for the prefixes Nats- and Nuthatch-;
	// values hold no line breaks.
	Properties map[string]string
	// Data is the record's content.
	Data []byte
	// Position of a record that was read. Of a transient one: the last position before it.
	Position Position
	// Transient records are ordered with the others, and are not stored.
	Transient bool
}
