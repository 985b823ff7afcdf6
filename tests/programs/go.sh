# Go: a static program with goroutines, channels, timers, a server and a child; built plainly.
. "$SCENES/prelude.sh"
export GOCACHE=$CACHE/go GOPATH=$PWD/path GOFLAGS=-mod=mod GOTOOLCHAIN=local GO111MODULE=on GOPROXY=off
cat >go.mod <<'G'
module example.org/guest

go 1.19
G
cat >main.go <<'G'
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

func main() {
	sums := make([]string, 16)
	var wg sync.WaitGroup
	for i := range sums {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			h := sha256.Sum256([]byte{byte(i)})
			for j := 0; j < 5000; j++ {
				h = sha256.Sum256(h[:])
			}
			sums[i] = fmt.Sprintf("%x", h[:8])
		}(i)
	}
	wg.Wait()
	fmt.Println(sums)
	ch := make(chan int)
	go func() {
		for i := 0; i < 1000; i++ {
			ch <- i
		}
		close(ch)
	}()
	total := 0
	for v := range ch {
		total += v
	}
	fmt.Println(total)
	select {
	case <-time.After(20 * time.Millisecond):
		fmt.Println("timer")
	case <-make(chan int):
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hi %s", r.URL.Path) }))
	for i := 0; i < 5; i++ {
		r, err := http.Get(fmt.Sprintf("http://%s/%d", l.Addr(), i))
		if err != nil {
			panic(err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		fmt.Println(string(b))
	}
	out, err := exec.Command("sh", "-c", "echo child").Output()
	fmt.Print(string(out), err, "\n")
	os.WriteFile("out/file", []byte("written\n"), 0o644)
}
G
CGO_ENABLED=0 go build -trimpath -o guest .
"${run[@]}" ./guest
