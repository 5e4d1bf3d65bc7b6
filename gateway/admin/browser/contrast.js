// Returns what cannot be read: texts whose contrast with what is behind them is below WCAG AA.
(() => {
  const parse = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (rgb) => rgb.slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
      if (color[3] !== 0) return [127, 127, 127]; // half transparent: the page has none
    }
    return [127, 127, 127];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement, style = getComputedStyle(e);
    if (!node.textContent.trim() || style.display === "none" || !e.getClientRects().length) continue;
    seen++;
    const [a, b] = [luminance(parse(style.color)), luminance(behind(e))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) bad.push(`${node.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return seen < 2 ? ["only " + seen + " texts were seen"] : bad;
})()
