package main

// #cgo LDFLAGS: -lrocksdb
// #include <stdlib.h>
// #include <rocksdb/c.h>
import "C"

import (
	"errors"
	"unsafe"
)

// database is the little of RocksDB that a queue needs.
type database struct {
	db     *C.rocksdb_t
	writes *C.rocksdb_writeoptions_t
	reads  *C.rocksdb_readoptions_t
}

func openDatabase(dir string) (*database, error) {
	options := C.rocksdb_options_create()
	defer C.rocksdb_options_destroy(options)
	C.rocksdb_options_set_create_if_missing(options, 1)
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	var failure *C.char
	db := C.rocksdb_open(options, path, &failure)
	if err := take(failure); err != nil {
		return nil, err
	}
	return &database{db, C.rocksdb_writeoptions_create(), C.rocksdb_readoptions_create()}, nil
}

func (d *database) close() {
	C.rocksdb_close(d.db)
}

// take turns RocksDB's error into Go's and frees it.
func take(failure *C.char) error {
	if failure == nil {
		return nil
	}
	defer C.rocksdb_free(unsafe.Pointer(failure))
	return errors.New(C.GoString(failure))
}

// pointer to the first byte; RocksDB copies what it is given before it returns.
func pointer(bytes []byte) *C.char {
	if len(bytes) == 0 {
		return nil
	}
	return (*C.char)(unsafe.Pointer(&bytes[0]))
}

// batch collects changes that are written together.
type batch struct {
	changes *C.rocksdb_writebatch_t
}

func newBatch() batch {
	return batch{C.rocksdb_writebatch_create()}
}

func (b batch) put(key, value []byte) {
	C.rocksdb_writebatch_put(b.changes, pointer(key), C.size_t(len(key)), pointer(value), C.size_t(len(value)))
}

func (b batch) remove(key []byte) {
	C.rocksdb_writebatch_delete(b.changes, pointer(key), C.size_t(len(key)))
}

// write applies the batch and ends it.
func (d *database) write(b batch) error {
	defer C.rocksdb_writebatch_destroy(b.changes)
	var failure *C.char
	C.rocksdb_write(d.db, d.writes, b.changes, &failure)
	return take(failure)
}

// get returns nil when there is no such key.
func (d *database) get(key []byte) ([]byte, error) {
	var failure *C.char
	var length C.size_t
	value := C.rocksdb_get(d.db, d.reads, pointer(key), C.size_t(len(key)), &length, &failure)
	if err := take(failure); err != nil || value == nil {
		return nil, err
	}
	defer C.rocksdb_free(unsafe.Pointer(value))
	return C.GoBytes(unsafe.Pointer(value), C.int(length)), nil
}
