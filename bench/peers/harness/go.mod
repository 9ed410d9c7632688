module nuthatch.invalid/bench/harness

go 1.25.0
