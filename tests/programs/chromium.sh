# Chromium without a window: its processes share memory; a script on a page, a worker, an image.
. "$SCENES/prelude.sh"
cat >page.html <<'H'
<html><body><p id=sum></p><p id=worker></p><p id=image></p><script>
let sum = 0;
for (let i = 0; i < 1e6; i++) sum += i;
document.getElementById("sum").textContent = sum;
const work = new Worker(URL.createObjectURL(new Blob(["let n = 1; for (let i = 0; i < 1000; i++) n = n * 7 % 1000003; postMessage(n)"])));
work.onmessage = event => { document.getElementById("worker").textContent = event.data };
const drawn = document.createElement("canvas").getContext("2d");
drawn.fillStyle = "red";
drawn.fillRect(0, 0, 9, 9);
document.getElementById("image").textContent = drawn.getImageData(4, 4, 1, 1).data.join(" ");
</script></body></html>
H
export HOME=$PWD TMPDIR=$PWD
browse() {
    "${run[@]}" chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --virtual-time-budget=20000 --user-data-dir="$PWD/profile" "$@" \
        --dump-dom "file://$PWD/page.html" 2>browser.log | grep -oE '<p id=.*</p>'
}
browse
browse --single-process --no-zygote
