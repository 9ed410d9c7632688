#!/usr/bin/env bash
# "Subject-Mapped Partitions in JetStream" (natsbyexample.com) on three servers: its configuration files and its commands
# with the official `nats` command, whose `bench` has these flags in v0.1.1:
#   go install github.com/nats-io/natscli/nats@v0.1.1
# Takes the program to run as nats-server (a link of that name to nuthatch, or a nats-server). Works in a directory of its own,
# listens on ports 4222 to 4224, 6222 to 6224 and 8222 to 8224, and ends the servers. MESSAGES=20000 publishes fewer.
# Not part of the tests; crates/nuthatch/tests/cluster_config.rs is the same set-up without the command.
set -euo pipefail
server=$(realpath -s "${1:?partitions.sh: give the program to run as nats-server}")
messages=${MESSAGES:-200000}
command -v nats >/dev/null || { echo "partitions.sh: nats is needed (go install github.com/nats-io/natscli/nats@v0.1.1)" >&2; exit 2; }
work=$(mktemp -d)
servers=()
end() {
    [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true
    wait || true
    rm -rf "$work"
}
trap end EXIT
cd "$work"
export HOME=$work
unset NATS_URL

cat > accounts.conf <<'END'
accounts: {
  SYS: { users: [{user: sys, password: sys}] }
  APP: {
    jetstream: true,
    users: [{user: app, password: app}]
    mappings: { "events.*": "events.{{wildcard(1)}}.{{partition(5,1)}}" }
  }
}
system_account: SYS
END

for i in 1 2 3; do
    cat > "n$i.conf" <<END
port: $((4221 + i))
http_port: $((8221 + i))
server_name: n$i
include accounts.conf
jetstream: { store_dir: "./n$i" }
cluster: {
  name: c1,
  port: $((6221 + i)),
  routes: [ "nats-route://0.0.0.0:6222", "nats-route://0.0.0.0:6223", "nats-route://0.0.0.0:6224" ],
}
END
    "$server" -c "n$i.conf" > "n$i.log" 2>&1 &
    servers+=($!)
done

nats context save --server "nats://localhost:4222,nats://localhost:4223,nats://localhost:4224" \
    --user app --password app default > /dev/null
nats context select default > /dev/null
# Until the nodes have found each other.
for _ in $(seq 120); do nats stream ls > /dev/null 2>&1 && break; sleep 0.5; done

for i in 0 1 2 3 4; do
    nats stream add --retention=limits --storage=file --replicas=3 --discard=old --dupe-window=2m --max-age=-1 \
        --max-msgs=-1 --max-bytes=-1 --max-msg-size=-1 --max-msgs-per-subject=-1 --max-consumers=-1 --allow-rollup \
        --no-deny-delete --no-deny-purge --subjects="events.*.$i" "events-$i" > /dev/null
done
nats stream report

publish() {
    nats bench --js --multisubject --multisubjectmax 0 --msgs "$messages" --no-progress --stream "events-0" "$@" "events"
    nats stream report
}

empty() {
    for i in 0 1 2 3 4; do nats stream purge -f "events-$i" > /dev/null; done
}

publish --pub 1 --syncpub
empty
publish --pub 1 --pubbatch 100
empty
publish --pub 5 --pubbatch 100
