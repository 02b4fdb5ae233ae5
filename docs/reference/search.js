// Finds names in names.js as they are typed: by their beginnings, then by parts, then by what is said of them.
const box = document.getElementById('search-box');
const found = document.getElementById('search-found');

function search(text) {
    const words = text.toLowerCase().split(/[\s()]+/).filter(Boolean);
    if (!words.length) return [];
    const rank = ([name, , kind, summary]) => {
        const low = name.toLowerCase();
        const all = low + ' ' + summary.toLowerCase();
        if (!words.every(word => all.includes(word))) return 9;
        const first = words[0];
        if (low === first) return 0;
        if (low.startsWith(first)) return 1;
        if (low.includes('_' + first)) return 2;
        return (low.includes(first) ? 3 : 4) + (kind === 'constant' ? 0.5 : 0);
    };
    return names.map(row => [rank(row), row])
        .filter(([n]) => n < 9)
        .sort(([n, [a]], [m, [b]]) => n - m || a.length - b.length)
        .slice(0, 12)
        .map(([, row]) => row);
}
function show() {
    found.textContent = '';
    for (const [name, href, kind, summary] of search(box.value)) {
        const link = document.createElement('a');
        const label = document.createElement('b');
        const note = document.createElement('span');
        link.href = href;
        label.textContent = name;
        note.textContent = kind + (summary ? ': ' + summary : '');
        link.append(label, note);
        found.append(link);
    }
}
function move(step) {
    const links = [...found.children];
    const at = links.indexOf(document.activeElement) + step;
    (links[at] || box).focus();
}
box.addEventListener('input', show);
document.addEventListener('click', event => {
    if (!event.target.closest('.search') || event.target.closest('#search-found a')) found.textContent = '';
});
document.addEventListener('keydown', event => {
    const inside = event.target.closest('.search');
    if (event.key === '/' && !inside) box.focus();
    else if (event.key === 'Escape') found.textContent = '';
    else if (event.key === 'Enter' && event.target === box && found.firstChild) found.firstChild.click();
    else if (event.key === 'ArrowDown' && inside) move(1);
    else if (event.key === 'ArrowUp' && inside) move(-1);
    else return;
    if (event.key !== 'Escape') event.preventDefault();
});
const contents = document.querySelector('.toc');
if (contents) contents.open = innerWidth >= 1000;
