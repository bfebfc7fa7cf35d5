#!/bin/sh
# Lays out the root of the container image: image-root.sh EXECUTABLE CA-BUNDLE DIRECTORY. Beside DIRECTORY it makes
# `writable`, the directories that the image's user owns. The libraries are those of the machine it runs on.
set -eu
executable=$1 bundle=$2 root=$3

install -D -m 0755 "$executable" "$root/bin/privatemode-proxy"
install -D -m 0644 "$bundle" "$root/etc/ssl/certs/ca-certificates.crt"
echo 'nonroot:x:65532:65532:nonroot:/workspace:/sbin/nologin' > "$root/etc/passwd"
echo 'nonroot:x:65532:' > "$root/etc/group"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"

# The libraries, and the loader that the kernel starts them with, where the executable looks for them.
listed=$(ldd "$executable")
case $listed in *'not found'*) echo "$listed" >&2; exit 1 ;; esac
echo "$listed" | grep -o '/[^ ]*' | while read -r library; do
  install -D -m 0755 "$library" "$root$library"
done

# With their modes here, because COPY does not set the mode of the directory that it copies into.
writable=$(dirname "$root")/writable
install -d -m 0755 "$writable" "$writable/app"
install -d -m 0770 "$writable/workspace" "$writable/app/privatemode-proxy"
