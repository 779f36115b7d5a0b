// The side of kernels.py that runs in Node: executes cells one at a time, and keeps what they
// declare.
//
// V8 executes a cell as the console of a browser does ("replMode" of its inspector): declarations
// last, may be repeated, and `await` may stand at the top. Cells run on the main thread. A worker
// thread holds the socket to Python, so that it can end a loop that keeps the main thread busy.
// A request is a line of JSON, and so is its answer.
'use strict'

const inspector = require('node:inspector')
const nodeModule = require('node:module')
const path = require('node:path')
const { pathToFileURL } = require('node:url')
const util = require('node:util')
const { Worker } = require('node:worker_threads')
const internal = require

// ---- the worker ----

function connect(fd) {
  const { Session } = require('node:inspector')
  const { Socket } = require('node:net')
  const { parentPort } = require('node:worker_threads')
  const session = new Session()
  const socket = new Socket({ fd })
  let text = '', busy = false, interrupted = false, stops = 0, asking

  // What ends a cell may reach the main thread when that is idle, and then ends what runs next. So
  // the main thread is asked until it answers.
  function interrupt() {
    interrupted = true
    stops++
    session.connectToMainThread() // only now: Node would wait for its end before it exits
    session.post('Runtime.terminateExecution', () => {
      asking = setInterval(() => parentPort.postMessage({ stop: stops }), 20)
    })
  }

  parentPort.on('message', (answer) => {
    if (interrupted || answer.stopped) {
      if (!interrupted || answer.stopped !== stops) return
      clearInterval(asking)
      session.disconnect()
    }
    if (busy) socket.write(JSON.stringify(answer) + '\n')
    busy = interrupted = false
  })
  socket.on('close', () => process.kill(process.pid, 'SIGKILL'))
  socket.setEncoding('utf8')
  socket.on('data', (data) => {
    text += data
    const end = text.indexOf('\n')
    if (end < 0) return
    const request = JSON.parse(text.slice(0, end))
    text = text.slice(end + 1)
    if (!request.interrupt) {
      busy = true
      parentPort.postMessage(request)
    } else if (busy && !interrupted) {
      interrupt()
    }
  })
}

// ---- import ----

// Cells are scripts, which cannot import modules; this module can.
function importModule(name, options) {
  const isPath = /^\.{0,2}\//.test(name)
  return import(isPath ? pathToFileURL(path.resolve(name)).href : name, options)
}

function declaration(code, node) {
  const call = `await __import(${node.source.raw})`
  const names = []
  let whole = null
  for (const one of node.specifiers) {
    if (one.type === 'ImportNamespaceSpecifier') whole = one.local.name
    else if (one.type === 'ImportDefaultSpecifier') names.push(`default: ${one.local.name}`)
    else names.push(`${code.slice(one.imported.start, one.imported.end)}: ${one.local.name}`)
  }
  const members = names.length > 0 ? `const { ${names.join(', ')} } = ` : ''
  const lines = '\n'.repeat(code.slice(node.start, node.end).split('\n').length - 1)
  if (!whole) return `${members}${call};${lines}`
  return `const ${whole} = ${call};${members ? members + whole + ';' : ''}${lines}`
}

// Replaces the imports of a cell by calls. What cannot be parsed stays, and V8 says why.
function withImports(code) {
  if (!/\bimport\b/.test(code)) return code
  const found = []
  try {
    const { parse } = internal('internal/deps/acorn/acorn/dist/acorn')
    const { full } = internal('internal/deps/acorn/acorn-walk/dist/walk')
    full(parse(code, { ecmaVersion: 'latest', allowImportExportEverywhere: true,
      allowAwaitOutsideFunction: true }), (node) => {
      if (node.type === 'ImportDeclaration')
        found.push([node.start, node.end, declaration(code, node)])
      if (node.type === 'ImportExpression') found.push([node.start, node.start + 6, '__import'])
    })
  } catch {
    return code
  }
  for (const [start, end, text] of found.sort((a, b) => b[0] - a[0]))
    code = code.slice(0, start) + text + code.slice(end)
  return code
}

function withoutTypes(code) {
  if (!nodeModule.stripTypeScriptTypes)
    throw new Error(`TypeScript needs Node 22.13 or newer; this is ${process.version}`)
  const { emitWarning } = process
  process.emitWarning = () => {} // that it is experimental
  try {
    return nodeModule.stripTypeScriptTypes(code)
  } finally {
    process.emitWarning = emitWarning
  }
}

// ---- values and errors ----

const METHODS = { _toHtml: 'text/html', _toSvg: 'image/svg+xml', _toPng: 'image/png',
  _toJpeg: 'image/jpeg' }

// The forms of a value by media type; those of methods are what IJavascript calls.
function show(value) {
  const forms = { 'text/plain': util.inspect(value, { maxStringLength: Infinity }) }
  if (value === null || typeof value !== 'object') return forms
  for (const [method, media] of Object.entries(METHODS))
    if (typeof value[method] === 'function') forms[media] = String(value[method]())
  return typeof value._toMime === 'function' ? { ...forms, ...value._toMime() } : forms
}

// The calls of this file, which end each stack.
const OWN_CALLS =
  /\n +at (?:[^\n]*\[eval\]:|Session\.post \(node:inspector)[^\n]*(?:\n +at [^\n]*)*/

function inspectError(e) {
  for (let at = e, i = 0; util.types.isNativeError(at) && i < 16; at = at.cause, i++)
    at.stack = String(at.stack).replace(OWN_CALLS, '')
  const text = util.inspect(e)
  return util.types.isNativeError(e) ? text.replace(/^\[(.*)\]$/s, '$1') : text
}

// Where V8 could not compile a cell.
function place(cell, { lineNumber, columnNumber }) {
  const line = cell.code.split('\n')[lineNumber]
  if (line === undefined || lineNumber + columnNumber === 0) return ''
  return `${cell.name}:${lineNumber + 1}\n${line}\n${' '.repeat(columnNumber)}^\n\n`
}

function describeError(e, cell, details) {
  const text = inspectError(e)
  if (!util.types.isNativeError(e))
    return { name: 'Error', value: text, traceback: `Uncaught ${text}` }
  const compiled = !details || e.name !== 'SyntaxError' || /\n +at /.test(text)
  return { name: String(e.name), value: String(e.message),
    traceback: compiled ? text : place(cell, details) + `SyntaxError: ${e.message}` }
}

// ---- cells ----

const session = new inspector.Session()
const box = { value: undefined, take(value) { this.value = value } }
let boxId, worker, running = null, count = 0

// The value that the inspector describes.
function valueOf({ objectId, unserializableValue, value }) {
  const argument = objectId ? { objectId }
    : unserializableValue ? { unserializableValue } : { value }
  session.post('Runtime.callFunctionOn', { objectId: boxId, arguments: [argument],
    functionDeclaration: 'function (value) { this.take(value) }' })
  const taken = box.value
  box.value = undefined
  return taken
}

function finish(cell, failure, outcome) {
  const answer = {}
  if (cell !== running) return
  try {
    const details = outcome?.exceptionDetails
    const value = outcome && valueOf(details ? details.exception : outcome.result)
    if (failure) answer.error = describeError(new Error(failure.message))
    else if (details) answer.error = describeError(value, cell, details)
    else if (value !== undefined) answer.forms = show(value)
  } catch (e) {
    answer.error = describeError(e)
  }
  running = null
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' })
  worker.postMessage(answer)
}

function run({ code, language, changed, gone }) {
  const cell = { name: `cell-${++count}.js`, code }
  let script
  running = cell
  Object.assign(process.env, changed)
  for (const name of gone) delete process.env[name]
  try {
    script = withImports(language === 'typescript' ? withoutTypes(code) : code)
  } catch (e) {
    running = null
    worker.postMessage({ error: describeError(e) })
    return
  }
  session.post('Runtime.evaluate', { expression: `${script}\n//# sourceURL=${cell.name}`,
    objectGroup: 'cell', replMode: true, awaitPromise: true },
  (failure, outcome) => finish(cell, failure, outcome))
}

function start(fd) {
  session.connect()
  globalThis.box = box
  session.post('Runtime.evaluate', { expression: 'box' },
    (e, { result }) => { boxId = result.objectId })
  delete globalThis.box
  Object.defineProperty(globalThis, '__import', { value: importModule })
  process.on('uncaughtException', (e) => console.error('Uncaught', inspectError(e)))
  worker = new Worker(`(${connect})(${fd})`, { eval: true })
  worker.on('message', (request) => {
    if (!request.stop) return run(request)
    running = null
    worker.postMessage({ stopped: request.stop })
  })
}

start(Number(process.argv[1]))
process.argv.length = 1
process.execArgv.length = 0
