# The Go tool: a module of three packages built and tested; the standard library is built plainly.
. "$SCENES/prelude.sh"
export GOPATH=$PWD/path GOFLAGS=-mod=mod GOTOOLCHAIN=local GO111MODULE=on GOPROXY=off
export CGO_ENABLED=0 GOTELEMETRY=off HOME=$PWD
cat >go.mod <<'G'
module example.org/guest

go 1.19
G
mkdir table words
cat >words/words.go <<'G'
// Package words splits and sorts.
package words

import (
	"sort"
	"strings"
)

// Sorted returns the words of a text in order.
func Sorted(text string) []string {
	all := strings.Fields(text)
	sort.Strings(all)
	return all
}
G
cat >words/words_test.go <<'G'
package words

import (
	"reflect"
	"testing"
)

func TestSorted(t *testing.T) {
	if got := Sorted(" b a\tc"); !reflect.DeepEqual(got, []string{"a", "b", "c"}) {
		t.Fatal(got)
	}
}

func TestWrong(t *testing.T) {
	t.Parallel()
	if got := Sorted("b a"); got[0] != "b" {
		t.Errorf("first is %s", got[0])
	}
}
G
{
    printf '// Package table is long.\npackage table\n\n'
    for i in {1..400}; do
        printf 'func f%d(n int) int { s := %d; for i := 0; i < n; i++ { s += i ^ %d }; return s }\n' "$i" "$i" "$i"
    done
    printf '\n// Sum calls them all.\nfunc Sum(n int) int {\n\ts := 0\n'
    for i in {1..400}; do printf '\ts += f%d(n)\n' "$i"; done
    printf '\treturn s\n}\n'
} >table/table.go
cat >main.go <<'G'
package main

import (
	"fmt"

	"example.org/guest/table"
	"example.org/guest/words"
)

func main() { fmt.Println(words.Sorted("some words to sort"), table.Sum(9)) }
G
# Only what is not the module's own is taken from elsewhere.
if [[ ! -d $CACHE/go-build ]]; then
    GOCACHE=$CACHE/go-build.new go build -trimpath fmt sort strings
    GOCACHE=$CACHE/go-build.new go vet fmt >/dev/null
    printf 'package none\n\nimport (\n\t"reflect"\n\t"testing"\n)\n\nfunc TestNone(t *testing.T) { reflect.TypeOf(t) }\n' >path.go
    mkdir none && mv path.go none/none_test.go
    GOCACHE=$CACHE/go-build.new go test -trimpath ./none >/dev/null
    rm -r none
    mv "$CACHE/go-build.new" "$CACHE/go-build"
fi
cp -r "$CACHE/go-build" cache
export GOCACHE=$PWD/cache
"${run[@]}" go build -trimpath -o out/guest .
out/guest
status=0
"${run[@]}" go test -trimpath ./... >test.log || status=$?
echo "status $status"
# How long it took is chance.
sed -E 's/[0-9.]+s\)?$//' test.log
"${run[@]}" go vet ./...
"${run[@]}" go list -deps ./... | grep guest
