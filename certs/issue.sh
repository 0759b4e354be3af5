#!/bin/bash
# Certificates for development and tests: a CA of your own, and what it signs.
#
#     certs/issue.sh DIR server HOST...   DIR/server.pem and DIR/server.key, for names and addresses
#     certs/issue.sh DIR client NAME      DIR/client-NAME.pem and .key, with NAME as common name
#
# The CA (DIR/ca.pem, DIR/ca.key) is made with the first one. Keys are 0600 and stay in DIR: keep it
# out of version control. For production take certificates of your own CA (docs/security.md).
set -euo pipefail

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

[ $# -ge 3 ] || usage
dir=$1 kind=$2
shift 2
umask 077
mkdir -p "$dir"

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

if [ ! -e "$dir/ca.key" ]; then
    new_key "$dir/ca.key"
    openssl req -x509 -new -key "$dir/ca.key" -sha256 -days 3650 -subj "/CN=leasehold development CA" \
        -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \
        -addext "keyUsage=critical,keyCertSign,cRLSign" -out "$dir/ca.pem"
    chmod 644 "$dir/ca.pem"
fi

# sign FILE SUBJECT EXTENSIONS
sign() {
    new_key "$dir/$1.key"
    openssl req -new -key "$dir/$1.key" -subj "/CN=$2" -out "$dir/$1.csr"
    openssl x509 -req -in "$dir/$1.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -sha256 -days 825 \
        -set_serial "0x$(openssl rand -hex 16)" -extfile <(printf '%s\n' "${@:3}") \
        -out "$dir/$1.pem" 2>/dev/null
    rm "$dir/$1.csr"
    chmod 644 "$dir/$1.pem"
}

common=("basicConstraints=critical,CA:FALSE" "keyUsage=critical,digitalSignature")
case $kind in
server)
    names=""
    for host in "$@"; do
        case $host in
        *[!0-9.:a-fA-F]* | *[g-zG-Z]*) names+=",DNS:$host" ;;
        *:* | *[0-9].*) names+=",IP:$host" ;;
        *) names+=",DNS:$host" ;;
        esac
    done
    sign server "$1" "${common[@]}" "extendedKeyUsage=serverAuth" "subjectAltName=${names#,}"
    ;;
client)
    [ $# -eq 1 ] || usage
    case $1 in */* | "") usage ;; esac
    sign "client-$1" "$1" "${common[@]}" "extendedKeyUsage=clientAuth" "subjectAltName=DNS:$1"
    ;;
*) usage ;;
esac
