// What is pointed at in a chart, and tables that can be sorted and filtered. A page is complete without it.
(() => {
const make = (name, kind, home) => {
  const e = document.createElement(name); e.className = kind; home?.append(e); return e };
const digits = (v, n) => v.toLocaleString('en-US', {minimumFractionDigits: n, maximumFractionDigits: n});
const plain = v => Number.isInteger(v) ? digits(v, 0) : Math.abs(v) >= 0.1 ? digits(v, 3)
  : String(+v.toPrecision(3));
const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
const bytes = v => { let at = 0; while (Math.abs(v) >= 1024 && at < 6) { v /= 1024; at++ }
  return digits(v, at && 2) + ' ' + units[at] };
const size = unit => 1024 ** Math.max(0, units.indexOf(unit)) * ({min: 60, h: 3600, d: 86400}[unit] ?? 1);
const clock = t => new Date(t * 1000).toISOString().slice(0, 19).replace('T', ' ') + ' UTC';
const elapsed = t => { if (t < 60) return t.toFixed(2) + ' s';
  const s = Math.round(t), parts = [[86400, 'd', 3600, 'h'], [3600, 'h', 60, 'min'], [60, 'min', 1, 's']];
  for (const [size, unit, below, small] of parts)
    if (s >= size) { const rest = Math.floor(s % size / below);
      return Math.floor(s / size) + ' ' + unit + (rest ? ' ' + rest + ' ' + small : '') } };
const nearest = (list, t) => { let low = 0, high = list.length - 1;
  while (high - low > 1) { const mid = (low + high) >> 1; list[mid][0] < t ? low = mid : high = mid }
  return t - list[low][0] <= list[high][0] - t ? low : high };

for (const plot of document.querySelectorAll('svg[data-x]')) {
  const [kind, from, to, within] = plot.dataset.x.split(' ').map((w, at) => at ? +w : w);
  const when = kind == 'clock' ? clock : elapsed, told = plot.dataset.y == 'byte' ? bytes : plain;
  const chart = plot.closest('.chart');
  let lines, moments, at = null, tip, cursor;
  const read = () => { if (lines) return;
    lines = [...plot.querySelectorAll('.line[data-v]')].map(path => { let t = from;
      return [path, path.dataset.v.split(',').map(w => {
        const [step, v] = w.split(' '); t += +step; return [t, +v] })] });
    moments = [...new Set(lines.flatMap(line => line[1].map(p => p[0])))].sort((a, b) => a - b).map(t => [t]);
    tip = make('div', 'tip', chart); tip.setAttribute('role', 'status'); tip.hidden = true;
    cursor = document.createElementNS(plot.namespaceURI, 'path'); cursor.setAttribute('class', 'cursor');
    plot.append(cursor) };
  const hide = () => { if (!tip) return; tip.hidden = true; cursor.removeAttribute('d') };
  const show = index => { read(); at = Math.max(0, Math.min(moments.length - 1, index));
    const t = moments[at][0], share = (t - from) / (to - from);
    cursor.setAttribute('d', 'M' + share * 1000 + ' 0V1000'); tip.replaceChildren(); tip.hidden = false;
    make('b', '', tip).textContent = when(t);
    for (const [path, points] of lines) { const [at, v] = points[nearest(points, t)];
      const row = make('span', '', tip), key = plot.cloneNode(false);
      for (const a of [...key.attributes]) if (a.name != 'xmlns') key.removeAttribute(a.name);
      key.setAttribute('viewBox', '0 0 26 13'); const dash = path.cloneNode(false);
      dash.setAttribute('d', 'M1 6.5H25'); dash.removeAttribute('data-v'); key.append(dash);
      row.append(key, (path.dataset.name ? path.dataset.name + ': ' : '')
        + (Math.abs(at - t) <= within ? told(v) : 'unknown')) }
    const box = plot.getBoundingClientRect(), home = chart.getBoundingClientRect();
    const middle = box.left - home.left + share * box.width, room = chart.clientWidth - tip.offsetWidth;
    const left = share < .5 ? middle + 12 : middle - 12 - tip.offsetWidth;
    tip.style.left = Math.max(0, Math.min(room, left)) + 'px' };
  const point = event => { read(); const box = plot.getBoundingClientRect();
    show(nearest(moments, from + (to - from) * (event.clientX - box.left) / box.width)) };
  plot.tabIndex = 0;
  plot.addEventListener('pointermove', point); plot.addEventListener('pointerdown', point);
  plot.addEventListener('pointerleave', event => event.pointerType == 'mouse' && hide());
  plot.addEventListener('focus', () => { read(); at ?? show(moments.length - 1) });
  plot.addEventListener('blur', hide);
  plot.addEventListener('keydown', event => {
    const move = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9}[event.key];
    if (move) { read(); show((at ?? moments.length) + move); event.preventDefault() }
    if (event.key == 'Escape') hide() });
}

for (const table of document.querySelectorAll('table.listed')) {
  const body = table.tBodies[0], rows = [...body.rows], tools = make('div', 'tools');
  const search = make('input', '', tools), order = make('select', '', tools), count = make('span', '', tools);
  search.type = 'search'; search.placeholder = 'Filter';
  search.setAttribute('aria-label', 'Show only rows with');
  order.setAttribute('aria-label', 'Sort by'); count.setAttribute('role', 'status');
  order.add(new Option('As listed', ''));
  [...table.tHead.rows[0].cells].forEach((cell, at) => { for (const [word, way] of [['up', 1], ['down', -1]])
    order.add(new Option(cell.textContent + ', ' + word, at + ' ' + way)) });
  const key = (row, at) => { const text = row.cells[at].textContent.trim();
    const words = text.replaceAll(',', '').split(' '); let value = 0;
    for (let place = 0; place < words.length; place += 2) value += words[place] * size(words[place + 1]);
    return !text || Number.isNaN(value) ? text : value };
  const update = () => {
    const wanted = search.value.toLowerCase(), [at, way] = order.value.split(' ').map(Number);
    const keyed = rows.map(row => [order.value && key(row, at), row]);
    if (order.value) keyed.sort(([a], [b]) => way * (typeof a == typeof b ? (a < b ? -1 : a > b ? 1 : 0)
      : typeof a == 'number' ? -1 : 1));
    let shown = 0;
    for (const [, row] of keyed) { row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += !row.hidden }
    body.append(...keyed.map(one => one[1])); count.textContent = shown + ' of ' + rows.length };
  search.addEventListener('input', update); order.addEventListener('input', update);
  table.before(tools); count.textContent = rows.length + ' of ' + rows.length;
}
})();
