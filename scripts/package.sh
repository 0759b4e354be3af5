#!/bin/bash
# package.sh STAGE OUT: makes OUT/leasehold_VERSION_ARCH.deb of what `make install` staged below STAGE.
# The same tree gives the same bytes: times are those of the last commit, owners are root.
set -euo pipefail

stage=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."

version=$("$stage/usr/bin/leasehold" version | awk '{ print $2 }')
arch=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Makefile)
export SOURCE_DATE_EPOCH

programs=("$stage"/usr/lib/leasehold/*)
strip --strip-unneeded "${programs[@]}"
install -D -m 0644 packaging/copyright "$stage/usr/share/doc/leasehold/copyright"
install -m 0644 README.md "$stage/usr/share/doc/leasehold/README.md"
cp -r docs "$stage/usr/share/doc/leasehold/docs"
rm -r "$stage/usr/share/doc/leasehold/docs/man"
# A link to what is not in the package, as a source file, becomes its text.
find "$stage/usr/share/doc" -name '*.md' -exec perl -MFile::Basename -0pi -e '
    s{\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)}{ -e dirname($ARGV) . "/$2" ? $& : $1 }ge' {} +
find "$stage/usr/share/man" -name '*.[0-9]' -exec gzip -9n {} +
find "$stage" -type d -exec chmod 0755 {} +

# dpkg-shlibdeps wants a source package around it; an empty one does.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/debian"
printf 'Source: leasehold\n' >"$scratch/debian/control"
depends=$(cd "$scratch" && dpkg-shlibdeps -O "${programs[@]/#/-e}" 2>"$scratch/said") || {
    cat "$scratch/said" >&2
    exit 1
}
size=$(du -k -s --apparent-size "$stage" | cut -f 1)

install -d -m 0755 "$stage/DEBIAN"
sed -e "s|@version@|$version|" -e "s|@architecture@|$arch|" -e "s|@installed_size@|$size|" \
    -e "s|@depends@|${depends#shlibs:Depends=}|" packaging/control.in >"$stage/DEBIAN/control"
install -m 0755 packaging/postinst packaging/prerm packaging/postrm "$stage/DEBIAN"
(cd "$stage" && find usr -type f -exec md5sum {} + | sort -k 2 >DEBIAN/md5sums)
chmod 0644 "$stage/DEBIAN/control" "$stage/DEBIAN/md5sums"

file=$out/leasehold_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$stage" "$file" >/dev/null
echo "$file"
