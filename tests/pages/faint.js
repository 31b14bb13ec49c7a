// The texts of a page whose contrast with what is behind them is less than 4.5 (WCAG AA), as lines.
(() => {
  const parse = (colour) => { const parts = colour.match(/[\d.]+/g).map(Number); return parts.length < 4 ? [...parts, 1] : parts; };
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => part / 255).map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (front, back) => [0, 1, 2].map((i) => front[i] * front[3] + back[i] * (1 - front[3]));
  const up = function* (one) { for (let at = one; at; at = at.parentElement) yield at; };
  const behind = (one) => {
    const layers = [];
    for (const at of up(one)) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] >= 1) break;
    }
    return layers.reverse().reduce((base, layer) => over(layer, base), [255, 255, 255]);
  };
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement;
    const said = texts.currentNode.data.trim();
    if (!said || !one.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || !one.getBoundingClientRect().width) continue;
    // what cannot be used may be faint; what is filtered has another colour than it says
    if (one.closest("button:disabled, script, style, noscript")) continue;
    if ([...up(one)].some((at) => getComputedStyle(at).filter !== "none")) continue;
    const back = behind(one);
    const colour = parse(getComputedStyle(one).color);
    for (const at of up(one)) colour[3] *= +getComputedStyle(at).opacity;
    const [a, b] = [light(over(colour, back)), light(back)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.add(`${contrast.toFixed(2)} ${one.tagName.toLowerCase()} ${JSON.stringify(said.slice(0, 40))}`);
  }
  return [...found];
})()
