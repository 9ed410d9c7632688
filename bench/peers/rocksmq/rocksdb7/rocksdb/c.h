/* RocksDB's C interface with the functions that Milvus's binding (gorocksdb) names and RocksDB 7 has
 * dropped, so that the binding compiles unchanged against the Debian package. They do nothing:
 * RocksMQ calls none of them.
 * Found before the real one with CGO_CFLAGS="-O2 -g -I$PWD/rocksdb7". */
#ifndef NUTHATCH_ROCKSDB7_H
#define NUTHATCH_ROCKSDB7_H
#include_next <rocksdb/c.h>

#define DROPPED(name, type) \
  static inline void name(rocksdb_options_t* options, type value) { (void)options; (void)value; }

DROPPED(rocksdb_options_set_hard_rate_limit, double)
DROPPED(rocksdb_options_set_soft_rate_limit, double)
DROPPED(rocksdb_options_set_max_mem_compaction_level, int)
DROPPED(rocksdb_options_set_purge_redundant_kvs_while_flush, unsigned char)
DROPPED(rocksdb_options_set_rate_limit_delay_max_milliseconds, unsigned int)
DROPPED(rocksdb_options_set_skip_log_error_on_recovery, unsigned char)
DROPPED(rocksdb_options_set_table_cache_remove_scan_count_limit, int)

#undef DROPPED

static inline rocksdb_filterpolicy_t* rocksdb_filterpolicy_create(
    void* state, void (*destructor)(void*),
    char* (*create_filter)(void*, const char* const*, const size_t*, int, size_t*),
    unsigned char (*key_may_match)(void*, const char*, size_t, const char*, size_t),
    void (*delete_filter)(void*, const char*, size_t), const char* (*name)(void*)) {
  (void)state, (void)destructor, (void)create_filter, (void)key_may_match, (void)delete_filter;
  (void)name;
  return NULL;
}
#endif
