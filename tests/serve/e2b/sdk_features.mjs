// E2B's JavaScript SDK: see sdk_features.py. Runs in a directory that has the package:
//
//     node sdk_features.mjs ADDRESS DIRECTORY
import assert from 'node:assert'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [address, directory] = process.argv.slice(2)
Object.assign(process.env, {
  E2B_API_KEY: 'e2b_' + '0'.repeat(40), E2B_API_URL: address, E2B_SANDBOX_URL: address,
})
const require = createRequire(pathToFileURL(directory + '/x.js'))
const { Sandbox } = require('@e2b/code-interpreter')

const rows = {
  async control_plane() {
    const own = await Sandbox.create({ metadata: { a: 'b' }, envs: { A: '1' }, timeoutMs: 60000 })
    assert.deepEqual((await own.getInfo()).metadata, { a: 'b' })
    assert.equal(await own.isRunning(), true)
    await own.setTimeout(90000)
    const again = await Sandbox.connect(own.sandboxId)
    assert.equal((await again.commands.run('echo $A')).stdout, '1\n')
    const listed = await Sandbox.list().nextItems()
    assert(listed.some((one) => one.sandboxId === own.sandboxId))
    assert.equal(await own.kill(), true)
    assert.equal(await own.kill(), false)
  },
  async unknown_templates_are_refused() {
    await assert.rejects(Sandbox.create('no-such-template'), /no-such-template/)
  },
  async pause_and_connect() {
    const own = await Sandbox.create()
    await own.runCode('x = "kept"')
    await (own.pause ?? own.betaPause).call(own)
    assert.equal(await own.isRunning(), false)
    const again = await Sandbox.connect(own.sandboxId)
    assert.equal((await again.runCode('x')).text, 'kept')
    await again.kill()
  },
  async forks_and_snapshots() {
    const own = await Sandbox.create()
    await own.runCode('x = "kept"')
    await own.files.write('a.txt', 'b')
    const [fork] = await own.fork()
    assert.equal((await fork.runCode('x')).text, 'kept')
    const { snapshotId } = await own.createSnapshot()
    await own.kill()
    const again = await Sandbox.create(snapshotId)
    assert.equal(await again.files.read('a.txt'), 'b')
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), false)
    await Promise.all([fork.kill(), again.kill()])
  },
  async run_code(sandbox) {
    const seen = []
    const done = await sandbox.runCode('print("a")\n[1, 2]', {
      onStdout: (m) => seen.push(m.line), onResult: (r) => seen.push(r.text),
    })
    assert.deepEqual(seen, ['a\n', '[1, 2]'])
    assert.deepEqual(done.results[0].json, [1, 2])
    const failed = await sandbox.runCode('1 / 0')
    assert.equal(failed.error.name, 'ZeroDivisionError')
  },
  async contexts(sandbox) {
    const own = await sandbox.createCodeContext({ cwd: '/tmp' })
    const done = await sandbox.runCode('import os; os.getcwd()', { context: own })
    assert.equal(done.text, '/tmp')
    await sandbox.removeCodeContext(own)
  },
  async javascript(sandbox) {
    if (process.getuid() !== 0) {
      await assert.rejects(sandbox.runCode('1', { language: 'js' }), /--epoll yes/)
      return
    }
    const own = await sandbox.createCodeContext({ language: 'javascript', cwd: '/tmp' })
    const context = { context: own }
    const first = await sandbox.runCode('const a = 1; console.log(a); process.cwd()', context)
    assert.deepEqual([first.logs.stdout, first.text], [['1\n'], '/tmp'])
    assert.equal((await sandbox.runCode('await Promise.resolve(a + 1)', context)).text, '2')
    const failed = await sandbox.runCode('null.x', context)
    assert.equal(failed.error.name, 'TypeError')
    await sandbox.removeCodeContext(own)
  },
  async commands(sandbox) {
    const done = await sandbox.commands.run('echo out; echo err >&2; pwd', { cwd: '/usr' })
    assert.deepEqual([done.stdout, done.stderr], ['out\n/usr\n', 'err\n'])
    await assert.rejects(sandbox.commands.run('exit 3'), (e) => e.exitCode === 3)
    const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, 'x\n')
    assert.equal(await handle.kill(), true)
  },
  async terminals(sandbox) {
    const seen = []
    const pty = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => seen.push(data) })
    await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('echo A$((1+1))B; exit\n'))
    await pty.wait()
    assert(Buffer.concat(seen).includes('A2B'))
  },
  async metrics(sandbox) {
    const [now] = await sandbox.getMetrics()
    assert(now.cpuCount > 0 && now.memUsed > 0 && now.memUsed < now.memTotal)
    assert(now.diskTotal > 0)
  },
  async files(sandbox) {
    await sandbox.files.write('a/b.txt', 'é')
    assert.equal(await sandbox.files.read('a/b.txt'), 'é')
    const large = new Uint8Array(2000000).fill(7)
    await sandbox.files.write('a/large', large.buffer)
    assert.equal((await sandbox.files.read('a/large', { format: 'bytes' })).length, 2000000)
    assert.deepEqual((await sandbox.files.list('a')).map((one) => one.name), ['b.txt', 'large'])
    await sandbox.files.rename('a/b.txt', 'c/d.txt')
    assert.equal(await sandbox.files.exists('a/b.txt'), false)
    assert.equal(await sandbox.files.makeDir('e'), true)
    await sandbox.files.remove('a')
    await assert.rejects(sandbox.files.read('a/large'), /No such file/)
  },
  async files_watched(sandbox) {
    await sandbox.files.makeDir('watched')
    let tell
    const told = new Promise((resolve) => { tell = resolve })
    const handle = await sandbox.files.watchDir('watched', (event) => {
      if (event.type === 'write') tell(event.name)
    })
    await sandbox.files.write('watched/new.txt', 'x')
    assert.equal(await told, 'new.txt')
    await handle.stop()
  },
  async signed_urls(sandbox) {
    await sandbox.files.write('signed.txt', 'secret')
    const url = await sandbox.downloadUrl('signed.txt', { useSignatureExpiration: 10000 })
    assert.equal(await (await fetch(url)).text(), 'secret')
    assert.equal((await fetch(url.replace('signed', 'other'))).status, 401)
  },
}

const answers = {}
const shared = await Sandbox.create({ timeoutMs: 600000 })
for (const [name, row] of Object.entries(rows)) {
  try {
    await row(shared)
    answers[name] = null
  } catch (e) {
    answers[name] = String(e.stack ?? e)
  }
}
await shared.kill()
console.log(JSON.stringify(answers))
process.exit(0)
