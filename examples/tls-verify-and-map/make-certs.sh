#!/usr/bin/env bash
# Makes an authority and certificates for a server and three clients, into the directory that is named.
#
#   ada      is known by an e-mail address
#   device   is known by a DNS name
#   carol    is known by the subject alone: CN=carol,OU=ops,O=Birds
#   mallory  has a certificate of another authority
set -euo pipefail
out=${1:?usage: make-certs.sh DIRECTORY}
mkdir -p "$out"
cd "$out"

authority() { # name
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
        -keyout "$1.key" -out "$1.pem" -subj "/O=Birds/CN=$1" 2>/dev/null
}

certificate() { # name, authority, subject, alternative names
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
        -keyout "$1.key" -out "$1.csr" -subj "$3" 2>/dev/null
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days 30 \
        -extfile <(echo "basicConstraints=CA:FALSE${4:+$'\n'subjectAltName=$4}") -out "$1.pem" 2>/dev/null
    rm "$1.csr"
}

authority ca
authority other-ca
certificate server ca "/O=Birds/CN=localhost" "DNS:localhost,IP:127.0.0.1"
certificate ada ca "/O=Birds/CN=Ada" "email:ada@birds.example"
certificate device ca "/O=Birds/CN=some device" "DNS:device-7.birds.example"
certificate carol ca "/O=Birds/OU=ops/CN=carol"
certificate mallory other-ca "/O=Birds/CN=Ada" "email:ada@birds.example"
