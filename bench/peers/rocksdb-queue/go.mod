module nuthatch.invalid/bench/rocksdb-queue

go 1.25.0

require nuthatch.invalid/bench/harness v0.0.0

replace nuthatch.invalid/bench/harness => ../harness
