// The reader's choices, kept for the next load: a live page reloads with every change.

function remembered(key, value) {
  try {
    if (value !== undefined) sessionStorage.setItem(key, value);
    return sessionStorage.getItem(key);
  } catch {
    return null; // private modes refuse storage; the page works without
  }
}

// One choice in one section; called by name, as at the next load there may be sections and rows before it.
function kept(section, what, value) {
  const key = `${location.pathname} ${section.querySelector("h2").textContent} ${what}`;
  const text = remembered(key, value === undefined ? undefined : JSON.stringify(value));
  return text === null ? null : JSON.parse(text);
}
