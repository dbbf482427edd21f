-- Stands in front of the scripts that may meet foreign keys.
--
-- kind returns 'none', 'lock' with its owner and hold count, or the type of another key. A hash
-- is a lock if the hash has one field, named like an owner, with a number: a script neither
-- waits for nor removes an application's hash under the same name.
local function kind(key)
    local size = redis.pcall('hlen', key)
    if type(size) == 'table' then
        local what = redis.call('type', key).ok
        if what ~= 'hash' then
            return what
        end
        size = redis.call('hlen', key) -- is not allowed: fails again
    elseif size == 0 then
        return 'none'
    end
    if size ~= 1 then
        return redis.pcall('hexists', key, 'mode') == 1 and 'read/write lock' or 'hash with ' .. size .. ' fields'
    end
    local item = redis.call('hgetall', key)
    if string.find(item[1], ':', 1, true) and string.find(item[2], '^%d+$') then
        return 'lock', item[1], item[2]
    end
    return 'hash with the field ' .. item[1]
end
