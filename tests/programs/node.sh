# Node.js: worker threads, its thread pool, a child process, and an HTTP server in one program.
. "$SCENES/prelude.sh"
cat >main.js <<'J'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto'), zlib = require('zlib'), http = require('http'), fs = require('fs');
const { promisify } = require('util'), { execFile } = require('child_process');
if (!isMainThread) {
  let h = Buffer.from('' + workerData);
  for (let i = 0; i < 2000; i++) h = crypto.createHash('sha256').update(h).digest();
  parentPort.postMessage(h.toString('hex'));
} else {
  const work = n => new Promise((resolve, reject) => {
    const w = new Worker(__filename, { workerData: n });
    w.on('message', resolve); w.on('error', reject);
  });
  (async () => {
    console.log((await Promise.all([1, 2, 3].map(work))).join('\n'));
    const keys = await Promise.all([1, 2, 3, 4, 5].map(i => promisify(crypto.scrypt)('p' + i, 'salt', 16, { N: 1024 })));
    console.log(keys.map(k => k.toString('hex')).join('\n'));
    const packed = await promisify(zlib.gzip)(Buffer.alloc(300000, 'rcoe '));
    console.log((await promisify(zlib.gunzip)(packed)).length);
    await fs.promises.writeFile('out/file', 'written\n');
    console.log((await fs.promises.readFile('out/file', 'utf8')).trim());
    console.log((await promisify(execFile)('sh', ['-c', 'echo child'])).stdout.trim());
    const server = http.createServer((q, r) => r.end('you asked for ' + q.url)).listen(0, '127.0.0.1', async () => {
      const get = path => new Promise(done => http.get({ port: server.address().port, host: '127.0.0.1', path, agent: false },
        r => { let t = ''; r.on('data', d => t += d); r.on('end', () => done(t)); }));
      for (const t of await Promise.all(['/a', '/b', '/c'].map(get))) console.log(t);
      server.close();
    });
  })();
}
J
"${run[@]}" node main.js
