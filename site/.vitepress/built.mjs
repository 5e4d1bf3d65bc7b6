// What is done once the pages are built: llms.txt is written, and every link is followed.
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { about, files, linked, markdown, pageOf, read, root, sections, shownOf } from './source.mjs'

// writeIndex writes llms.txt, which has a line for each page, and the Markdown of the pages that it leads to. That of a README has the name of its page, too.
export function writeIndex(folder, base) {
  const left = new Set(files())
  const line = (file) => {
    left.delete(file)
    const { title, sentence } = about(file)
    return `- [${title}](${base}${file})${sentence ? `: ${sentence}` : ''}`
  }
  const lines = [`# ${about('README.md').title}`, '', `> ${about('README.md').sentence}`, '', '## First', '', line('README.md'), line('docs/README.md')]
  const sourceOf = new Map(files().map((file) => [`/${pageOf(file)}`, file]))
  for (const section of sections()) {
    lines.push('', `## ${section.text}`, '', ...section.items.map((item) => line(sourceOf.get(item.link))))
  }
  lines.push('', '## Optional', '', ...[...left].map(line))
  writeFileSync(join(folder, 'llms.txt'), lines.join('\n') + '\n')
  for (const file of files()) {
    mkdirSync(dirname(join(folder, file)), { recursive: true })
    for (const name of new Set([file, pageOf(file)])) writeFileSync(join(folder, name), markdown(file))
  }
}

// copyLinked copies the files that pages lead to.
export function copyLinked(folder) {
  for (const file of linked) {
    mkdirSync(dirname(join(folder, file)), { recursive: true })
    copyFileSync(join(root, file), join(folder, shownOf(file)))
  }
}

const leads = /\s(?:href|src)="([^"]*)"/g

// dead returns the links of the site which lead to no page, file or anchor of it, and says how many lead there.
export function dead(folder, base) {
  const pages = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.html')).map((name) => name.replaceAll('\\', '/'))
  const html = new Map(pages.map((page) => [page, readFileSync(join(folder, page), 'utf8')]))
  const anchors = new Map(pages.map((page) => [page, new Set([...html.get(page).matchAll(/\s(?:id|name)="([^"]*)"/g)].map((found) => unescape(found[1])))]))
  const bad = []
  let followed = 0
  const follow = (from, href) => {
    if (/^([a-z][a-z0-9+.-]*:|\/\/)/i.test(href) || href === '') return
    const url = new URL(href, `http://site${base}${from}`)
    followed++
    if (!url.pathname.startsWith(base)) return bad.push(`${from}: ${href} is outside of ${base}`)
    let to = decodeURIComponent(url.pathname.slice(base.length))
    if (to === '' || to.endsWith('/')) to += 'index.html'
    if (!existsSync(join(folder, to))) return bad.push(`${from}: there is no ${href}`)
    const anchor = decodeURIComponent(url.hash.slice(1))
    if (anchor && anchors.has(to) && !anchors.get(to).has(anchor)) bad.push(`${from}: ${to} has no anchor #${anchor}`)
  }
  for (const page of pages) {
    for (const [, href] of html.get(page).matchAll(leads)) follow(page, unescape(href))
  }
  for (const [, href] of readFileSync(join(folder, 'llms.txt'), 'utf8').matchAll(/\]\(([^)]+)\)/g)) follow('llms.txt', href)
  for (const file of files()) {
    const prose = markdown(file).replace(/^ *```[\s\S]*?^ *```/gm, '').replace(/`[^`\n]*`/g, '')
    for (const [, href] of prose.matchAll(/\]\(([^()\s]+)\)/g)) follow(file, href)
  }
  return { bad, followed, pages: pages.length }
}

const unescape = (text) => text.replaceAll('&quot;', '"').replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&#39;', "'").replaceAll('&amp;', '&')
